# Finds LibTorch and defines the target LibTorch::LibTorch. locate_libtorch.cmake lists the places
# where it looks. With FSDP_CUDA the target includes the CUDA part and NCCL. PyTorch's own
# TorchConfig.cmake is not used, because it adds CUDA to a CPU build and fails with CUDA 13 and
# CMake 3.25.

option(FSDP_CUDA "Build with the CUDA part of LibTorch and NCCL" OFF)

set(LibTorch_ROOT "" CACHE PATH "LibTorch's folder")
set(_root ${LibTorch_ROOT})
include(${CMAKE_CURRENT_LIST_DIR}/locate_libtorch.cmake)
if(NOT LibTorch_ROOT STREQUAL _root)
  set(LibTorch_ROOT ${LibTorch_ROOT} CACHE PATH "LibTorch's folder" FORCE)
  foreach(_library LibTorch_CPU LibTorch_C10 LibTorch_CUDA LibTorch_C10_CUDA)
    unset(${_library} CACHE)
  endforeach()
endif()

set(_required LibTorch_ROOT LibTorch_CPU LibTorch_C10)
find_library(LibTorch_CPU torch_cpu PATHS ${LibTorch_ROOT}/lib NO_DEFAULT_PATH)
find_library(LibTorch_C10 c10 PATHS ${LibTorch_ROOT}/lib NO_DEFAULT_PATH)
if(FSDP_CUDA)
  find_package(CUDAToolkit REQUIRED)
  find_library(LibTorch_CUDA torch_cuda PATHS ${LibTorch_ROOT}/lib NO_DEFAULT_PATH)
  find_library(LibTorch_C10_CUDA c10_cuda PATHS ${LibTorch_ROOT}/lib NO_DEFAULT_PATH)
  # The header nccl.h is in the CUDA toolkit, in the system's package of NCCL, or in a Python wheel
  # that was installed beside torch.
  find_path(LibTorch_NCCL_INCLUDE nccl.h PATHS ${LibTorch_ROOT}/../nvidia/nccl/include
            HINTS ${CUDAToolkit_INCLUDE_DIRS})
  list(APPEND _required LibTorch_CUDA LibTorch_C10_CUDA LibTorch_NCCL_INCLUDE)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  LibTorch REQUIRED_VARS ${_required} VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "Run ./fsdp setup, or name an unpacked LibTorch with -DLIBTORCH=DIR.")

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  target_include_directories(
    LibTorch::LibTorch SYSTEM INTERFACE ${LibTorch_ROOT}/include
                                        ${LibTorch_ROOT}/include/torch/csrc/api/include)
  target_compile_definitions(LibTorch::LibTorch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
  # libtorch_cpu.so refers to symbols of CUDA libraries, which a CPU build neither has nor calls, so
  # the linker must accept these symbols as undefined.
  target_link_options(LibTorch::LibTorch INTERFACE -Wl,--allow-shlib-undefined
                      "-Wl,-rpath,${LibTorch_ROOT}/lib")
  target_link_libraries(LibTorch::LibTorch INTERFACE ${LibTorch_CPU} ${LibTorch_C10})
  # LibTorch loads the shared libstdc++. With -static-libstdc++ the program would get a second
  # libstdc++, so the shared one is linked here by its file name.
  include(CheckLinkerFlag)
  check_linker_flag(CXX -l:libstdc++.so.6 LibTorch_HAS_STDCXX)
  if(LibTorch_HAS_STDCXX)
    target_link_libraries(LibTorch::LibTorch INTERFACE -l:libstdc++.so.6)
  endif()
  if(FSDP_CUDA)
    target_compile_definitions(LibTorch::LibTorch INTERFACE FSDP_CUDA USE_C10D_NCCL)
    target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE ${LibTorch_NCCL_INCLUDE})
    target_link_libraries(LibTorch::LibTorch INTERFACE ${LibTorch_CUDA} ${LibTorch_C10_CUDA}
                                                       CUDA::cudart)
    # The CUDA part registers its kernels when it is loaded. The linker must keep it although the
    # program may use none of its symbols.
    target_link_options(LibTorch::LibTorch INTERFACE -Wl,--no-as-needed)
  endif()
endif()
mark_as_advanced(LibTorch_CPU LibTorch_C10 LibTorch_CUDA LibTorch_C10_CUDA LibTorch_NCCL_INCLUDE)
