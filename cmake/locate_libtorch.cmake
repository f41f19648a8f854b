# Sets LibTorch_ROOT to the folder of the LibTorch to use, and LibTorch_VERSION. Sets neither if it
# finds none. It searches in this order:
# 1. LibTorch_ROOT, the result of an earlier search.
# 2. Torch_DIR, CMAKE_PREFIX_PATH and LIBTORCH, as CMake variables or in the environment. They name
#    an unpacked LibTorch, a wheel's torch folder, or its share/cmake, which is Python's
#    torch.utils.cmake_prefix_path.
# 3. LibTorch_BUILT_WITH, which an installed fsdp sets.
# 4. The torch of a Python: of the project's .venv, then of python3. A version with which this
#    project was not tested is skipped.
# FindLibTorch.cmake includes this file, and scripts/verbs/setup.sh uses it in script mode.

# The oldest and the newest LibTorch with which this project is tested. With other versions,
# common/transports/gloo_group.cpp and common/memory/storage_guard.cpp do not compile.
set(LibTorch_OLDEST 2.11)
set(LibTorch_NEWEST 2.15)
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH _project)

# Sets the caller's `result` to the version of the LibTorch in `folder`, or to "" if there is none.
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
  if(_prefix MATCHES "/share/cmake/?$")  # torch.utils.cmake_prefix_path of a wheel
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

# find_spec locates the package without importing it, because the import would fail in an
# installation without the CUDA libraries.
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
