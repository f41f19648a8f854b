# The modules of common/ and trainer/. Each is a library, fsdp_MODULE, on top of the modules that it uses.
# A module is compiled as one file (a unity build), so two of its files must not define the same name.

# The library fsdp_NAME, of the sources in `folder`. The modules that follow are those it includes.
function(module_in folder name)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
  add_library(fsdp_${name} STATIC EXCLUDE_FROM_ALL ${sources})
  set_target_properties(fsdp_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  target_link_libraries(fsdp_${name} PUBLIC fsdp_warnings)
  foreach(base ${ARGN})
    target_link_libraries(fsdp_${name} PUBLIC fsdp_${base})
  endforeach()
endfunction()

# Lets a target use LibTorch.
function(with_torch target)
  target_link_libraries(${target} PUBLIC fsdp_flags)
  target_precompile_headers(${target} REUSE_FROM fsdp_pch)
endfunction()

# A module of common/, which uses LibTorch.
function(torch_module name)
  module_in(common/${name} ${name} ${ARGN})
  with_torch(fsdp_${name})
endfunction()

# A module of trainer/. Only modules of trainer/, and what stands on them, find headers there.
function(trainer_module name)
  module_in(trainer/${name} ${name} ${ARGN})
  target_include_directories(fsdp_${name} PUBLIC ${PROJECT_SOURCE_DIR}/trainer)
endfunction()

function(torch_trainer_module name)
  trainer_module(${name} ${ARGN})
  with_torch(fsdp_${name})
endfunction()

# Those of common/
module_in(common/base base)
torch_module(memory)
torch_module(nn base)
torch_module(optim base memory)
torch_module(comm base memory)
torch_module(trace base comm memory nn)

# The trainer.
trainer_module(command_line base)
trainer_module(digest)
torch_trainer_module(report base digest)
torch_trainer_module(cuda base comm memory)
torch_trainer_module(data base)
torch_trainer_module(config comm optim)
torch_trainer_module(offload base memory optim)
torch_trainer_module(state base comm digest optim)
torch_trainer_module(prediction base comm config memory offload optim trace)
torch_trainer_module(exchange comm nn state)
torch_trainer_module(strategies comm config data memory nn offload optim prediction state trace)
torch_trainer_module(planning base comm config memory nn optim prediction strategies)
torch_trainer_module(diff base comm config nn optim state strategies)
torch_trainer_module(train base comm config cuda data diff exchange memory optim planning prediction report state
                     strategies trace)
torch_trainer_module(options base comm command_line config cuda data diff exchange nn optim report
                     strategies trace train)

add_library(fsdp_gloo INTERFACE)
target_include_directories(fsdp_gloo SYSTEM INTERFACE ${PROJECT_SOURCE_DIR}/common/comm/gloo_declarations)
target_link_libraries(fsdp_comm PRIVATE fsdp_gloo)
target_link_libraries(fsdp_digest PRIVATE OpenSSL::Crypto)
# The one place where builds with and without CUDA differ.
get_target_property(sources fsdp_cuda SOURCES)
if(FSDP_CUDA)
  list(FILTER sources EXCLUDE REGEX "/without_cuda.cpp$")
else()
  list(FILTER sources EXCLUDE REGEX "/(gpu|nccl_transport).cpp$")
endif()
set_target_properties(fsdp_cuda PROPERTIES SOURCES "${sources}")

include(timeline_page)
target_sources(fsdp_trace PRIVATE ${timeline_page_source})

# What the tasks stand on.
add_library(fsdp_given INTERFACE)
target_link_libraries(fsdp_given INTERFACE fsdp_comm fsdp_memory fsdp_nn fsdp_optim)

# Tests need GoogleTest.
if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
torch_module(testing base comm memory nn optim trace)
target_link_libraries(fsdp_testing PUBLIC GTest::gtest)
if(FSDP_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_definitions(fsdp_testing PRIVATE __SANITIZE_ADDRESS__)  # as GCC does
endif()
# Of a function that several objects define, as of a template, a linker takes the first definition. So what
# runs the tests and compares comes before the code of a task, and all of it.
set(first testing base comm memory nn optim trace)
list(TRANSFORM first REPLACE "(.+)" "$<TARGET_FILE:fsdp_\\1>")
target_link_options(fsdp_testing INTERFACE LINKER:--whole-archive ${first} $<TARGET_FILE:GTest::gtest>
                                           LINKER:--no-whole-archive)
file(GLOB judge_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/common/testing/judge/*.cpp)
target_sources(fsdp_testing PRIVATE ${judge_sources})
