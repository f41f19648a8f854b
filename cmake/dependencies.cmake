# Finds GoogleTest, nlohmann/json, CLI11 and OpenSSL: each one in the folder FSDP_DEPENDENCIES or,
# if the folder lacks it, in the system. The folder is for machines without these packages and
# without a network. It has googletest/ (sources), nlohmann/, CLI/ and openssl/ (headers);
# `scripts/gpu.sh --collect` makes it.

set(FSDP_DEPENDENCIES "$ENV{FSDP_DEPENDENCIES}" CACHE PATH
  "A folder with googletest, nlohmann, CLI, openssl")

# headers_or_package(FOLDER TARGET PACKAGE): if the folder FSDP_DEPENDENCIES has the folder FOLDER,
# defines the target TARGET with the headers there; otherwise finds the package PACKAGE in the
# system, which defines TARGET.
macro(headers_or_package folder target package)
  if(TARGET ${target})
    # A project that contains this one has already defined the CMake target `target`, so there is
    # nothing to do.
  elseif(FSDP_DEPENDENCIES AND EXISTS ${FSDP_DEPENDENCIES}/${folder})
    add_library(${target} INTERFACE IMPORTED)
    target_include_directories(${target} SYSTEM INTERFACE ${FSDP_DEPENDENCIES})
  else()
    find_package(${package} REQUIRED)
  endif()
endmacro()

headers_or_package(nlohmann nlohmann_json::nlohmann_json nlohmann_json)
headers_or_package(openssl OpenSSL::Crypto OpenSSL)
if(NOT OPENSSL_FOUND)
  # FSDP_DEPENDENCIES has only the headers of OpenSSL. Its library libcrypto is on every machine
  # with Python, because Python needs it.
  find_library(FSDP_CRYPTO NAMES libcrypto.so.3 REQUIRED)
  target_link_libraries(OpenSSL::Crypto INTERFACE ${FSDP_CRYPTO})
endif()

# The packages below are only for this repository's programs and tests, so a project that contains
# this one does not need them.
if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
headers_or_package(CLI CLI11::CLI11 CLI11)
if(FSDP_DEPENDENCIES AND EXISTS ${FSDP_DEPENDENCIES}/googletest/CMakeLists.txt)
  set(INSTALL_GTEST OFF CACHE BOOL "" FORCE)
  set(BUILD_GMOCK OFF CACHE BOOL "" FORCE)
  add_subdirectory(${FSDP_DEPENDENCIES}/googletest ${PROJECT_BINARY_DIR}/googletest
                   EXCLUDE_FROM_ALL)
  if(NOT TARGET GTest::gtest)
    add_library(GTest::gtest ALIAS gtest)
  endif()
else()
  find_package(GTest REQUIRED)
endif()
