# The rooms of common/. Each is a library, fsdp_ROOM, on top of the rooms that it uses; none uses a task.
# A room is compiled as one file (a unity build), so two of its files must not define the same name.
# Clang-tidy looks at each file by itself: its preset has FSDP_UNITY off.

option(FSDP_UNITY "Compile each room of common/ as one file" ON)

# The rooms that follow the name are those it includes.
function(room name)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/common/${name}/*.cpp)
  add_library(fsdp_${name} STATIC EXCLUDE_FROM_ALL ${sources})
  set_target_properties(fsdp_${name} PROPERTIES UNITY_BUILD ${FSDP_UNITY} UNITY_BUILD_BATCH_SIZE 0)
  target_link_libraries(fsdp_${name} PUBLIC fsdp_warnings)
  foreach(base ${ARGN})
    target_link_libraries(fsdp_${name} PUBLIC fsdp_${base})
  endforeach()
endfunction()

# A room that uses LibTorch.
function(torch_room name)
  room(${name} ${ARGN})
  target_link_libraries(fsdp_${name} PUBLIC fsdp_flags)
  target_precompile_headers(fsdp_${name} REUSE_FROM fsdp_pch)
endfunction()

room(base)
torch_room(data)
torch_room(dispatch)
torch_room(layout)
torch_room(memory)
torch_room(nn)
torch_room(optim layout memory)
torch_room(comm base memory)
torch_room(cuda comm memory)
torch_room(trace base comm memory nn)
torch_room(config comm layout optim)
torch_room(prediction base comm config layout memory optim trace)
torch_room(report base)
torch_room(state base comm optim report)
torch_room(exchange comm nn state)
torch_room(train base comm config cuda data exchange layout memory nn optim prediction report state
           trace)
torch_room(testing base comm layout memory nn trace)

target_include_directories(fsdp_comm SYSTEM
                           PRIVATE ${PROJECT_SOURCE_DIR}/common/comm/gloo_declarations)
target_link_libraries(fsdp_report PRIVATE OpenSSL::Crypto)  # of sha256.cpp
target_link_libraries(fsdp_testing PUBLIC GTest::gtest)
# Of a function that several objects define, as of a template, a linker takes the first definition. So what
# runs the tests and compares comes before the code of a task, and all of it.
set(first testing base comm layout memory nn trace)
list(TRANSFORM first REPLACE "(.+)" "$<TARGET_FILE:fsdp_\\1>")
target_link_options(fsdp_testing INTERFACE LINKER:--whole-archive ${first} $<TARGET_FILE:GTest::gtest>
                                           LINKER:--no-whole-archive)
file(GLOB judge_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/common/testing/judge/*.cpp)
target_sources(fsdp_testing PRIVATE ${judge_sources})

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

# What the tasks stand on; the trainer and its predictions are not among it.
add_library(fsdp_given INTERFACE)
target_link_libraries(fsdp_given INTERFACE fsdp_comm fsdp_cuda fsdp_dispatch fsdp_layout fsdp_memory
                                           fsdp_nn fsdp_optim)
