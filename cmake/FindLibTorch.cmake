# Finds LibTorch and defines the target LibTorch::LibTorch.
#
# Looked at in this order: Torch_DIR, CMAKE_PREFIX_PATH and LIBTORCH (an unpacked LibTorch or a
# wheel's torch folder), then the torch of a Python: the project's .venv, then python3. Torch's own
# TorchConfig.cmake is not used: it pulls CUDA into a CPU build and fails with CUDA 13 and CMake 3.25.

set(_hints)
if(Torch_DIR)
  list(APPEND _hints ${Torch_DIR}/../../..)
endif()
list(APPEND _hints ${CMAKE_PREFIX_PATH} ${LIBTORCH} $ENV{LIBTORCH})

find_path(LibTorch_ROOT include/torch/csrc/api/include/torch/torch.h PATHS ${_hints}
          PATH_SUFFIXES torch NO_DEFAULT_PATH)

# find_spec locates the package without importing it: a CPU-only install lacks what import needs.
if(NOT LibTorch_ROOT)
  foreach(_python ${PROJECT_SOURCE_DIR}/.venv/bin/python3 python3)
    execute_process(
      COMMAND ${_python} -c
              "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
      OUTPUT_VARIABLE _found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE _failed)
    if(NOT _failed AND EXISTS ${_found}/include/torch/csrc/api/include/torch/torch.h)
      set(LibTorch_ROOT ${_found} CACHE PATH "LibTorch's folder" FORCE)
      break()
    endif()
  endforeach()
endif()

if(LibTorch_ROOT)
  file(STRINGS ${LibTorch_ROOT}/include/torch/version.h _version REGEX "define TORCH_VERSION \"")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" LibTorch_VERSION "${_version}")
endif()
find_library(LibTorch_CPU torch_cpu PATHS ${LibTorch_ROOT}/lib NO_DEFAULT_PATH)
find_library(LibTorch_C10 c10 PATHS ${LibTorch_ROOT}/lib NO_DEFAULT_PATH)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  LibTorch REQUIRED_VARS LibTorch_ROOT LibTorch_CPU LibTorch_C10 VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "Run ./fsdp setup, or name an unpacked LibTorch with -DLIBTORCH=DIR.")

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  target_include_directories(
    LibTorch::LibTorch SYSTEM INTERFACE ${LibTorch_ROOT}/include
                                        ${LibTorch_ROOT}/include/torch/csrc/api/include)
  target_compile_definitions(LibTorch::LibTorch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
  # The CPU part names symbols of CUDA libraries that a CPU build neither has nor calls.
  target_link_options(LibTorch::LibTorch INTERFACE -Wl,--allow-shlib-undefined
                      -Wl,-rpath,${LibTorch_ROOT}/lib)
  target_link_libraries(LibTorch::LibTorch INTERFACE ${LibTorch_CPU} ${LibTorch_C10})
endif()
mark_as_advanced(LibTorch_ROOT LibTorch_CPU LibTorch_C10)
