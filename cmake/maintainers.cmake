# Targets that a student's copy of this repository does not have.

add_library(reference_strategy INTERFACE)
target_link_libraries(reference_strategy INTERFACE fsdp_strategy reference_task7)

file(GLOB common_tests CONFIGURE_DEPENDS tests/common/*.cpp)
test_executable(fsdp_common_tests common_tests "fsdp_given;fsdp_trace" ${common_tests})

file(GLOB trainer_tests CONFIGURE_DEPENDS tests/trainer/*.cpp)
file(GLOB fuzz_sources CONFIGURE_DEPENDS tests/fuzz/*.cpp)
if(FSDP_FUZZ)
  add_executable(fuzz EXCLUDE_FROM_ALL ${fuzz_sources})
  target_link_libraries(fuzz PRIVATE fsdp_options)
  target_link_options(fuzz PRIVATE -fsanitize=fuzzer)
  target_compile_definitions(fuzz PRIVATE FSDP_FUZZ)
  compile_tests_together(fuzz ${fuzz_sources})
else()
  list(APPEND trainer_tests ${fuzz_sources})
endif()
test_executable(fsdp_common_tests trainer_tests fsdp_options ${trainer_tests})

add_subdirectory(grading/peers)

# Runs a test program for ./fsdp test.
add_executable(run_tests EXCLUDE_FROM_ALL programs/run_tests.cpp)
target_link_libraries(run_tests PRIVATE fsdp_check)

# What runs cost that no machine at hand could make.
file(GLOB plan_sources CONFIGURE_DEPENDS programs/plan/*.cpp)
add_library(fsdp_plan STATIC EXCLUDE_FROM_ALL ${plan_sources})
target_link_libraries(fsdp_plan PUBLIC reference_strategy fsdp_options)
target_include_directories(fsdp_plan PUBLIC programs)
target_precompile_headers(fsdp_plan REUSE_FROM fsdp_pch)
program(plan fsdp_plan programs/plan.cpp)
file(GLOB plan_tests CONFIGURE_DEPENDS tests/programs/plan/*.cpp)
test_executable(fsdp_common_tests plan_tests fsdp_plan ${plan_tests})

# What the site's page of a step runs as WebAssembly.
program(step fsdp_prediction grading/site/step/step.cpp)

# Written questions, whose answers are plans.
file(GLOB quiz_sources CONFIGURE_DEPENDS programs/quiz/*.cpp)
add_library(fsdp_quiz STATIC EXCLUDE_FROM_ALL ${quiz_sources})
target_link_libraries(fsdp_quiz PUBLIC fsdp_plan fsdp_digest)
target_precompile_headers(fsdp_quiz REUSE_FROM fsdp_pch)
program(quiz fsdp_quiz programs/quiz.cpp)
file(GLOB quiz_tests CONFIGURE_DEPENDS tests/programs/quiz/*.cpp)
test_executable(fsdp_common_tests quiz_tests fsdp_quiz ${quiz_tests})

program(transport_bench fsdp_given programs/transport_bench.cpp)

# The parts of reproduce. It trains through the train program, but runs the strict test itself, with the
# reference solutions.
file(GLOB reproduce_sources CONFIGURE_DEPENDS programs/reproduce/*.cpp)
add_library(fsdp_reproduce STATIC EXCLUDE_FROM_ALL ${reproduce_sources})
target_link_libraries(fsdp_reproduce PUBLIC reference_strategy fsdp_command_line)
target_include_directories(fsdp_reproduce PUBLIC programs)
target_precompile_headers(fsdp_reproduce REUSE_FROM fsdp_pch)
program(reproduce fsdp_reproduce programs/reproduce.cpp)
file(GLOB reproduce_tests CONFIGURE_DEPENDS tests/programs/reproduce/*.cpp)
test_executable(fsdp_common_tests reproduce_tests "fsdp_reproduce;fsdp_options" ${reproduce_tests})

# Ranks as threads, for the thread sanitizer, which can make nothing of processes: with it, these
# are the only tests.
file(GLOB threads_tests CONFIGURE_DEPENDS tests/threads/*.cpp)
test_executable(fsdp_common_tests threads_tests reference_strategy ${threads_tests})

# What the course's own code does under the reference solutions, and whether the numbers of the handouts
# are those of a run.
file(GLOB reference_tests CONFIGURE_DEPENDS tests/reference/*.cpp)
test_executable(fsdp_common_tests reference_tests "reference_strategy;fsdp_library" ${reference_tests})

# What goes beyond the tasks, with the reference solutions.
file(GLOB extension_tests CONFIGURE_DEPENDS tests/extensions/*.cpp)
test_executable(fsdp_common_tests extension_tests reference_strategy ${extension_tests})

file(GLOB library_tests CONFIGURE_DEPENDS tests/library/*.cpp)
test_executable(fsdp_common_tests library_tests fsdp_library ${library_tests})
add_dependencies(library_tests own_plan own_training)  # tests run them

# Random models and options, trained on ranks and in one process.
file(GLOB properties_tests CONFIGURE_DEPENDS tests/properties/*.cpp)
test_executable(fsdp_common_tests properties_tests "reference_strategy;fsdp_library" ${properties_tests})
target_include_directories(properties_tests PRIVATE solutions/extensions/task5_sharded_optimizer)

# Tests that need a GPU. They are compiled in every build, but run only in a build with CUDA. A test says
# what it needs, and is skipped if the machine does not have it.
file(GLOB gpu_tests CONFIGURE_DEPENDS tests/gpu/*.cpp tests/properties/p[lr]*.cpp)
test_executable(fsdp_gpu_tests gpu_tests "fsdp_reproduce;fsdp_library" ${gpu_tests})
target_include_directories(gpu_tests PRIVATE solutions/extensions/task5_sharded_optimizer)

# Several hosts on one machine. What makes them uses no LibTorch.
add_library(fsdp_network STATIC EXCLUDE_FROM_ALL tests/hosts/network.cpp)
target_link_libraries(fsdp_network PUBLIC fsdp_base)
file(GLOB hosts_tests CONFIGURE_DEPENDS tests/hosts/test_*.cpp)
test_executable(fsdp_common_tests hosts_tests fsdp_network ${hosts_tests})
add_dependencies(hosts_tests reference_train)

file(GLOB check_tests CONFIGURE_DEPENDS tests/programs/check/*.cpp)
test_executable(fsdp_common_tests check_tests fsdp_check ${check_tests})

# Solutions that measure the tests: another correct solution, which has to pass too, because the tests
# ask for the contract only; and one that shards nothing.
add_stack(second fsdp_given "${tasks}" ${PROJECT_SOURCE_DIR}/grading/second_solution)
add_stack(unsharded fsdp_given "${tasks}" ${PROJECT_SOURCE_DIR}/grading/unsharded
          ${PROJECT_SOURCE_DIR}/solutions)
