# GoogleTest, nlohmann/json, CLI11 and OpenSSL: from FSDP_DEPENDENCIES, a folder for machines that
# have neither them nor a network, else as the system has them. The folder holds googletest/
# (sources), nlohmann/, CLI/ and openssl/ (headers); what is not in it is the system's.
# scripts/gpu.sh --collect fills one.

set(FSDP_DEPENDENCIES "$ENV{FSDP_DEPENDENCIES}" CACHE PATH
  "A folder with googletest, nlohmann, CLI, openssl")

# The target `target` for the headers of `folder`, if it is there; else the package `package`.
macro(headers_or_package folder target package)
  if(TARGET ${target})
    # of the project that this one is part of
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
  # Headers alone came along. The library is there: Python uses it.
  find_library(FSDP_CRYPTO NAMES libcrypto.so.3 REQUIRED)
  target_link_libraries(OpenSSL::Crypto INTERFACE ${FSDP_CRYPTO})
endif()

# For programs and tests.
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
