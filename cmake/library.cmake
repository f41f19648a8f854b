# The target `fsdp`: the library, the reference solutions and all other code that it needs, as one
# archive. `cmake --install build/default --prefix P` installs it as P/lib/libfsdp.a,
# P/include/fsdp/ and P/lib/cmake/fsdp/, where find_package(fsdp) finds the target fsdp::fsdp.

# The headers that programs can include, as <fsdp/fully_shard.h> or <fsdp/nn/module.h>:
# <fsdp/fsdp.h> and the headers that it includes.
set(public_headers
    adapted.h all_gather_tensor.h backward_hooks.h check_hookable.h checkpoint_activations.h
    distributed_data_parallel.h flat_layout.h flat_parameter.h forward_method.h fsdp.h full_tensor.h
    fully_shard.h fully_sharded_data_parallel.h ignored.h keep_fp32.h locate.h meta_init.h
    module_holder.h module_of.h no_sync.h norms.h plan_step.h prefetch.h recomputed_call.h
    replicated_model.h separate_frozen.h sequential.h sharded_model.h sharded_optimizer.h
    state_dict.h this_ranks_part.h unit_plan.h visit_tensors.h wrap_by_size.h wrap_marked.h
    wrap_policy.h
    base/todo.h base/torch.h comm/call.h comm/clock.h comm/communicator.h
    comm/communicator_options.h comm/default_timeout.h comm/group.h comm/handle.h comm/link.h
    comm/rank_status.h comm/tree_sum.h hosts/start.h launch/collect.h launch/hosts.h
    launch/launched.h launch/launcher.h launch/rank_context.h launch/rank_exit.h
    memory/counting_allocator.h memory/live_bytes.h memory/memory_class.h nn/generator_states.h
    nn/lora.h nn/module.h nn/random_scope.h nn/reads_in_calls.h nn/unit_policy.h optim/exact_sum.h
    optim/loss_scaler.h optim/matrix_owners.h optim/mixed_precision.h optim/muon.h optim/p_norm.h
    optim/read_item.h optim/shard_layout.h optim/state_range.h optim/update_rule.h
    state/async_save.h state/checkpoint.h state/checkpoint_format.h state/model_state.h
    state/whole_state.h)

# fsdp_library: FullyShardedDataParallel for users' own models, on top of the reference solutions.
file(GLOB library_sources CONFIGURE_DEPENDS library/*.cpp)
add_library(fsdp_library STATIC EXCLUDE_FROM_ALL ${library_sources})
set_target_properties(fsdp_library PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
target_include_directories(fsdp_library PUBLIC library)
target_link_libraries(fsdp_library PUBLIC fsdp_planning fsdp_ranks fsdp_state reference_task0
                                          reference_task7)
target_precompile_headers(fsdp_library REUSE_FROM fsdp_memory)

add_library(fsdp STATIC)
add_library(fsdp::fsdp ALIAS fsdp)  # as in an installed package
set_target_properties(fsdp PROPERTIES LINKER_LANGUAGE CXX)
target_compile_features(fsdp PUBLIC cxx_std_20)
target_link_libraries(fsdp PUBLIC LibTorch::LibTorch Threads::Threads nlohmann_json::nlohmann_json
                      PRIVATE OpenSSL::Crypto)

# The archive of the target `fsdp` has the objects of all libraries to which fsdp_library and
# fsdp_cuda link, directly or not, and their own.
static_libraries_of(parts fsdp_cuda fsdp_library)
foreach(part ${parts})
  target_sources(fsdp PRIVATE $<TARGET_OBJECTS:${part}>)
endforeach()

# Copies the public headers into the build folder. Each copy includes other public headers as
# <fsdp/...>, because the user may have another <nn/module.h>. The target fsdp_headers makes the
# copies, and `fsdp` depends on it. If the copies were sources of `fsdp`, which compiles nothing
# itself, they would be made only for targets that link to `fsdp`.
set(copies)
list(JOIN public_headers "|" names)
foreach(header ${public_headers})
  file(GLOB found library/${header} common/${header} trainer/${header} tasks/*/${header}
       tasks/extensions/*/${header})
  set(copy ${PROJECT_BINARY_DIR}/include/fsdp/${header})
  cmake_path(GET copy PARENT_PATH folder)
  file(MAKE_DIRECTORY ${folder})
  add_custom_command(OUTPUT ${copy} DEPENDS ${found} VERBATIM
                     COMMAND sed -E "s,^#include <(${names})>,#include <fsdp/\\1>,"
                             ${found} > ${copy})
  list(APPEND copies ${copy})
endforeach()
add_custom_target(fsdp_headers DEPENDS ${copies})
add_dependencies(fsdp fsdp_headers)
target_include_directories(fsdp INTERFACE $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
                                          $<INSTALL_INTERFACE:include>)

if(NOT PROJECT_IS_TOP_LEVEL)
  set_target_properties(fsdp PROPERTIES EXCLUDE_FROM_ALL ON)
  return()
endif()

# The examples: programs that use the library in the way in which users' programs do.
foreach(example own_model own_plan own_training)
  add_executable(${example} examples/${example}.cpp)
  target_link_libraries(${example} PRIVATE fsdp fsdp_flags)
  target_precompile_headers(${example} REUSE_FROM fsdp_memory)
endforeach()

# `cmake --install` builds nothing. If the library is not built yet, this code, which runs during
# the installation, stops it with a clear error.
install(CODE [[
  if(NOT EXISTS "$<TARGET_FILE:fsdp>")
    message(FATAL_ERROR "the library is not built: first run \
cmake --build . --target fsdp in this build folder")
  endif()]])
install(TARGETS fsdp EXPORT fsdp ARCHIVE DESTINATION lib)
install(EXPORT fsdp NAMESPACE fsdp:: FILE fsdpTargets.cmake DESTINATION lib/cmake/fsdp)
foreach(header ${public_headers})
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${PROJECT_BINARY_DIR}/include/fsdp/${header} DESTINATION include/fsdp/${folder})
endforeach()
configure_file(cmake/fsdpConfig.cmake.in fsdpConfig.cmake @ONLY)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(fsdpConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/fsdpConfig.cmake ${PROJECT_BINARY_DIR}/fsdpConfigVersion.cmake
              cmake/FindLibTorch.cmake cmake/locate_libtorch.cmake
        DESTINATION lib/cmake/fsdp)
