# scripts/verbs/setup.sh runs this file with `cmake -P`. It prints, one per line, the Debian
# packages whose headers the build needs and this machine lacks; and `libtorch FOLDER` for the
# LibTorch that the build would use, if there is one.

string(REPLACE ":" ";" _prefixes "$ENV{CMAKE_PREFIX_PATH}")
foreach(_pair libgtest-dev=gtest/gtest.h nlohmann-json3-dev=nlohmann/json.hpp
              libcli11-dev=CLI/CLI.hpp libssl-dev=openssl/evp.h)
  string(REPLACE "=" ";" _pair ${_pair})
  list(GET _pair 0 _package)
  list(GET _pair 1 _header)
  unset(_found)
  foreach(_prefix ${_prefixes} /usr/local /usr)
    if(EXISTS ${_prefix}/include/${_header})
      set(_found TRUE)
    endif()
  endforeach()
  if(NOT _found)
    execute_process(COMMAND ${CMAKE_COMMAND} -E echo ${_package})
  endif()
endforeach()

include(${CMAKE_CURRENT_LIST_DIR}/locate_libtorch.cmake)
if(LibTorch_ROOT)
  execute_process(COMMAND ${CMAKE_COMMAND} -E echo "libtorch ${LibTorch_ROOT}")
endif()
