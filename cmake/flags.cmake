# The flags of every target: fsdp_warnings of those without LibTorch, fsdp_flags of those with it.
# The latter share one precompiled header, so they must all be the same.
add_library(fsdp_warnings INTERFACE)
target_include_directories(fsdp_warnings INTERFACE ${PROJECT_SOURCE_DIR}/common)
# -fPIC: the library can go into a Python extension. The same for all, as is the precompiled header.
target_compile_options(fsdp_warnings INTERFACE -fPIC)
# An index beyond a vector stops the program and names the line; no inner loop of ours indexes one.
target_compile_definitions(fsdp_warnings INTERFACE _GLIBCXX_ASSERTIONS)
target_link_libraries(fsdp_warnings INTERFACE Threads::Threads nlohmann_json::nlohmann_json)
add_library(fsdp_flags INTERFACE)
target_link_libraries(fsdp_flags INTERFACE fsdp_warnings LibTorch::LibTorch)

if(NOT PROJECT_IS_TOP_LEVEL)  # the rest is for who works on this repository
  return()
endif()

target_compile_options(fsdp_warnings INTERFACE -Wall -Wextra -Wno-unused-parameter)
target_link_libraries(fsdp_warnings INTERFACE CLI11::CLI11)

# LibTorch has about 400,000 symbols; the usual linker takes seconds for them.
include(CheckLinkerFlag)
foreach(linker mold lld)
  check_linker_flag(CXX -fuse-ld=${linker} FSDP_HAS_${linker})
  if(FSDP_HAS_${linker})
    target_link_options(fsdp_warnings INTERFACE -fuse-ld=${linker})
    break()
  endif()
endforeach()

# On in a folder that CI configured first, except in a student's copy. A folder keeps its setting,
# because a change would rebuild everything.
set(in_ci OFF)
if(NOT "$ENV{CI}" STREQUAL "" AND EXISTS ${PROJECT_SOURCE_DIR}/programs/reproduce)
  set(in_ci ON)
endif()
option(FSDP_WERROR "Let warnings fail the build" ${in_ci})
if(FSDP_WERROR)
  target_compile_options(fsdp_warnings INTERFACE -Werror)
endif()

set(FSDP_SANITIZE "" CACHE STRING "What -fsanitize= is given: address,undefined or thread")
option(FSDP_FUZZ "Build the programs of tests/fuzz; needs clang" OFF)
if(FSDP_FUZZ)
  set(FSDP_SANITIZE fuzzer-no-link,address,undefined,float-cast-overflow)
  target_compile_options(fsdp_warnings INTERFACE -fno-sanitize-recover=all)
endif()
if(FSDP_SANITIZE)
  target_compile_options(fsdp_warnings INTERFACE -fsanitize=${FSDP_SANITIZE}
                                                 -fno-omit-frame-pointer)
  target_link_options(fsdp_warnings INTERFACE -fsanitize=${FSDP_SANITIZE})
endif()
