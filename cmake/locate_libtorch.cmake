# Sets LibTorch_ROOT to the folder of the LibTorch to use, and LibTorch_VERSION; neither if none is
# found. Looked at in this order: Torch_DIR, CMAKE_PREFIX_PATH and LIBTORCH (an unpacked LibTorch, a
# wheel's torch folder, or its share/cmake, which Python's torch.utils.cmake_prefix_path names;
# CMake's variables first, then the environment's), then LibTorch_BUILT_WITH,
# which an installed fsdp knows, then the torch of a Python: the project's .venv, then python3. The
# torch of a Python is passed over when this project was not tested with it. Read by
# FindLibTorch.cmake and, in script mode, by scripts/verbs/setup.sh.

# common/transports/gloo_transport.cpp and common/memory/storage_guard.cpp refuse other versions.
set(LibTorch_OLDEST 2.11)
set(LibTorch_NEWEST 2.15)
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH _project)

# The version of the LibTorch in `folder`, in the caller's `result`; empty if there is none.
function(libtorch_version folder result)
  set(${result} "" PARENT_SCOPE)
  set(header ${folder}/include/torch/headeronly/version.h)
  if(NOT EXISTS ${header})
    set(header ${folder}/include/torch/csrc/api/include/torch/version.h)
  endif()
  if(EXISTS ${header} AND EXISTS ${folder}/include/torch/csrc/api/include/torch/torch.h)
    file(STRINGS ${header} numbers REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
    string(REGEX MATCHALL "[0-9]+" numbers "${numbers}")
    list(JOIN numbers "." version)
    set(${result} ${version} PARENT_SCOPE)
  endif()
endfunction()

set(_named)
foreach(_torch_dir ${Torch_DIR} $ENV{Torch_DIR})
  cmake_path(SET _torch_dir NORMALIZE ${_torch_dir}/../../..)
  list(APPEND _named ${_torch_dir})
endforeach()
string(REPLACE ":" ";" _prefixes "$ENV{CMAKE_PREFIX_PATH}")
foreach(_prefix ${CMAKE_PREFIX_PATH} ${_prefixes} ${LIBTORCH} $ENV{LIBTORCH})
  list(APPEND _named ${_prefix} ${_prefix}/torch)
  if(_prefix MATCHES "/share/cmake/?$")  # as torch.utils.cmake_prefix_path of a wheel
    cmake_path(SET _prefix NORMALIZE ${_prefix}/../..)
    list(APPEND _named ${_prefix})
  endif()
endforeach()

foreach(_folder ${LibTorch_ROOT} ${_named} ${LibTorch_BUILT_WITH})
  libtorch_version(${_folder} LibTorch_VERSION)
  if(LibTorch_VERSION)
    set(LibTorch_ROOT ${_folder})
    return()
  endif()
endforeach()
unset(LibTorch_ROOT)

# find_spec locates the package without importing it: a CPU-only install lacks what import needs.
foreach(_python ${_project}/.venv/bin/python3 python3)
  execute_process(
    COMMAND ${_python} -c
            "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE _folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE _failed)
  if(NOT _failed)
    libtorch_version("${_folder}" LibTorch_VERSION)
    string(REGEX MATCH "^[0-9]+\\.[0-9]+" _minor "${LibTorch_VERSION}")
    if(_minor VERSION_GREATER_EQUAL LibTorch_OLDEST AND _minor VERSION_LESS_EQUAL LibTorch_NEWEST)
      set(LibTorch_ROOT ${_folder})
      return()
    elseif(LibTorch_VERSION)
      message(NOTICE "passing over the torch ${LibTorch_VERSION} of ${_python}: "
                     "this project is tested with ${LibTorch_OLDEST} to ${LibTorch_NEWEST}")
    endif()
  endif()
endforeach()
unset(LibTorch_VERSION)
