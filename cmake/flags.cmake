# The flags of every target: fsdp_warnings for targets without LibTorch, fsdp_flags for targets with
# it. Targets with LibTorch share one precompiled header, so they must all have the same flags.
add_library(fsdp_warnings INTERFACE)
target_include_directories(fsdp_warnings INTERFACE ${PROJECT_SOURCE_DIR}/common)
# With -fPIC the library can be linked into a Python extension. All targets have it, because they
# share the precompiled header.
target_compile_options(fsdp_warnings INTERFACE -fPIC)
# With _GLIBCXX_ASSERTIONS, an index outside of a std::vector stops the program with a message that
# has the file and the line. This costs little time, because no inner loop of this project indexes a
# vector.
target_compile_definitions(fsdp_warnings INTERFACE _GLIBCXX_ASSERTIONS)
target_link_libraries(fsdp_warnings INTERFACE Threads::Threads nlohmann_json::nlohmann_json)
add_library(fsdp_flags INTERFACE)
target_link_libraries(fsdp_flags INTERFACE fsdp_warnings LibTorch::LibTorch)

if(NOT PROJECT_IS_TOP_LEVEL)  # the following flags are only for work on this repository
  return()
endif()

target_compile_options(fsdp_warnings INTERFACE -Wall -Wextra -Wno-unused-parameter)
# By default GCC's garbage collector searches for memory to free whenever the compiler's heap has
# grown by a third. With the headers of LibTorch it finds little. Without the search, a file
# compiles about a tenth faster, and the compiler takes a tenth more memory.
target_compile_options(fsdp_warnings
                       INTERFACE $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=2097152>)
target_link_libraries(fsdp_warnings INTERFACE CLI11::CLI11)

# Uses the linker mold or lld if it is installed: for LibTorch's symbols, about 400,000, the default
# linker takes seconds.
include(CheckLinkerFlag)
foreach(linker mold lld)
  check_linker_flag(CXX -fuse-ld=${linker} FSDP_HAS_${linker})
  if(FSDP_HAS_${linker})
    target_link_options(fsdp_warnings INTERFACE -fuse-ld=${linker})
    break()
  endif()
endforeach()

# FSDP_WERROR, which makes warnings errors, is on by default if the environment variable CI is set
# when a build folder is first configured; in a student's copy it is off. A build folder keeps its
# setting, because a change would rebuild everything.
set(in_ci OFF)
if(NOT "$ENV{CI}" STREQUAL "" AND EXISTS ${PROJECT_SOURCE_DIR}/programs/reproduce)
  set(in_ci ON)
endif()
option(FSDP_WERROR "Let warnings fail the build" ${in_ci})
if(FSDP_WERROR)
  target_compile_options(fsdp_warnings INTERFACE -Werror)
endif()

set(FSDP_SANITIZE "" CACHE STRING "Value of -fsanitize=: address,undefined or thread")
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
