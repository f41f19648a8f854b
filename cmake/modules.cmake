# This file defines the modules of common/ and trainer/. Each module is a library, fsdp_MODULE, on
# top of the modules that it uses. A module is compiled as one file (a unity build), so two of its
# files must not define the same name.

# module(PATH MODULE...): defines the library fsdp_NAME from the sources in the folder PATH, whose
# last part is NAME. The other arguments are the modules whose headers it includes. Only modules of
# trainer/, and targets that use them, find the headers of trainer/.
function(module path)
  cmake_path(GET path FILENAME name)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${path}/*.cpp)
  add_library(fsdp_${name} STATIC EXCLUDE_FROM_ALL ${sources})
  set_target_properties(fsdp_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  target_link_libraries(fsdp_${name} PUBLIC fsdp_warnings)
  foreach(base ${ARGN})
    target_link_libraries(fsdp_${name} PUBLIC fsdp_${base})
  endforeach()
  if(path MATCHES "^trainer/")
    target_include_directories(fsdp_${name} PUBLIC ${PROJECT_SOURCE_DIR}/trainer)
  endif()
  if(NOT name IN_LIST without_torch)
    target_link_libraries(fsdp_${name} PUBLIC fsdp_flags)
    if(name STREQUAL "memory")
      target_precompile_headers(fsdp_memory PRIVATE ${PROJECT_SOURCE_DIR}/cmake/pch.h)
      target_compile_options(fsdp_memory PRIVATE ${fsdp_line_numbers})
    else()
      target_precompile_headers(fsdp_${name} REUSE_FROM fsdp_memory)
    endif()
  endif()
endfunction()
set(without_torch base command_line digest)

module(common/base)
module(common/memory base)  # the first module with LibTorch: it makes the precompiled header
module(common/nn base)
module(common/optim base memory)
# The four modules below: comm has the functions that ranks call; launch starts ranks on one host;
# hosts connects ranks on several hosts; transports move the bytes between ranks.
module(common/comm base memory)
module(common/launch base comm memory)
module(common/hosts base comm launch)
module(common/transports base comm hosts launch memory)
module(common/digest)
module(common/agreement base comm digest optim)
module(common/trace base comm memory nn)
module(common/watch base comm memory)

module(trainer/command_line base)
module(trainer/report base digest)
module(trainer/cuda base comm hosts launch memory transports)
module(trainer/data base)
module(trainer/offload base memory optim)
module(trainer/state agreement base comm digest memory optim)
module(trainer/config base comm optim state)
module(trainer/prediction base comm config memory offload optim trace)
module(trainer/tokenizer base state)
module(trainer/exchange agreement base comm nn state tokenizer)
module(trainer/strategies base comm config data memory nn offload optim prediction state trace)
module(trainer/planning base comm config memory nn optim prediction strategies)
module(trainer/diff base comm config digest nn optim state strategies watch)
module(trainer/receipt base command_line diff digest state)
module(trainer/train agreement base command_line comm config cuda data diff digest exchange hosts
       launch memory optim planning prediction receipt report state strategies trace transports
       watch)
module(trainer/options base comm command_line config cuda data diff exchange launch nn optim
       receipt report state strategies tokenizer trace train)

add_library(fsdp_gloo INTERFACE)
target_include_directories(fsdp_gloo SYSTEM INTERFACE
  ${PROJECT_SOURCE_DIR}/common/transports/gloo_declarations)
target_link_libraries(fsdp_transports PRIVATE fsdp_gloo)
target_link_libraries(fsdp_digest PRIVATE OpenSSL::Crypto)
target_link_libraries(fsdp_receipt PRIVATE OpenSSL::Crypto)
target_compile_options(fsdp_digest PRIVATE -O3)  # bit_hash() reads all tensors of a step
# trainer/cuda has files for builds with CUDA and files for builds without it. Only the files for
# this build are compiled.
get_target_property(sources fsdp_cuda SOURCES)
if(FSDP_CUDA)
  list(FILTER sources EXCLUDE REGEX "/without_cuda.cpp$")
else()
  list(FILTER sources EXCLUDE REGEX "/(gpu|nccl_transport).cpp$")
endif()
set_target_properties(fsdp_cuda PROPERTIES SOURCES "${sources}")

include(timeline_page)
target_sources(fsdp_trace PRIVATE ${timeline_page_source})

# fsdp_given: the libraries with the code that the course gives to students for the tasks.
add_library(fsdp_given INTERFACE)
target_link_libraries(fsdp_given INTERFACE fsdp_comm fsdp_memory fsdp_nn fsdp_optim)
# fsdp_ranks: the libraries that a program needs to start and connect ranks.
add_library(fsdp_ranks INTERFACE)
target_link_libraries(fsdp_ranks INTERFACE fsdp_hosts fsdp_transports)

# fsdp_testing needs GoogleTest, so it is not defined if another project contains this one.
if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
module(common/testing base comm hosts launch memory nn optim trace transports watch)
target_link_libraries(fsdp_testing PUBLIC GTest::gtest)
if(FSDP_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_definitions(fsdp_testing PRIVATE __SANITIZE_ADDRESS__)  # as GCC does
endif()
# If several objects define the same function, for example an instance of a template, the linker
# uses the first definition. So the code that runs the tests and compares values is linked before
# the code of a task, and completely: a student's definition cannot replace it.
set(first testing base comm hosts launch memory nn optim trace transports watch)
list(TRANSFORM first REPLACE "(.+)" "$<TARGET_FILE:fsdp_\\1>")
target_link_options(fsdp_testing INTERFACE LINKER:--whole-archive ${first}
  $<TARGET_FILE:GTest::gtest>
                                           LINKER:--no-whole-archive)
file(GLOB judge_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/common/testing/judge/*.cpp)
target_sources(fsdp_testing PRIVATE ${judge_sources})
