# This file defines the targets that a student's copy of this repository does not have.

add_library(reference_strategy INTERFACE)
target_link_libraries(reference_strategy INTERFACE fsdp_strategy reference_task0 reference_task7)

# program_with_library(NAME LIBRARY...): defines the library fsdp_NAME, from the sources in
# programs/NAME/ and the given libraries, and the program NAME, which uses it.
function(program_with_library name)
  file(GLOB sources CONFIGURE_DEPENDS programs/${name}/*.cpp)
  add_library(fsdp_${name} STATIC EXCLUDE_FROM_ALL ${sources})
  set_target_properties(fsdp_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
  target_link_libraries(fsdp_${name} PUBLIC ${ARGN})
  target_include_directories(fsdp_${name} PUBLIC programs)
  target_precompile_headers(fsdp_${name} REUSE_FROM fsdp_memory)
  program(${name} fsdp_${name} programs/${name}.cpp)
endfunction()

# tests_in(PATTERN NAME LIBRARY SOURCE...): defines the test program NAME_tests, from the sources in
# tests/ that match PATTERN and from the SOURCEs, and links it with LIBRARY.
function(tests_in pattern name library)
  file(GLOB sources CONFIGURE_DEPENDS tests/${pattern})
  test_executable(fsdp_common_tests ${name}_tests "${library}" ${sources} ${ARGN})
endfunction()

# run_tests is the program with which ./fsdp test and ctest run each test program.
add_executable(run_tests EXCLUDE_FROM_ALL programs/run_tests.cpp)
target_link_libraries(run_tests PRIVATE fsdp_check)

program(transport_bench "fsdp_given;fsdp_ranks" programs/transport_bench.cpp)
# The program plan predicts what training runs cost, also runs that are too large for this machine.
program_with_library(plan reference_strategy fsdp_options)
# The program quiz writes questions for students. The code of plan (fsdp_plan) computes the answers.
program_with_library(quiz fsdp_plan fsdp_digest)
# The program reproduce trains with the train program, but runs the strict test itself, with the
# reference solutions.
program_with_library(reproduce reference_strategy fsdp_command_line)
embed_text(fsdp_reproduce programs/reproduce/tables.toml kTablesText)
# The page docs/step.html runs step.cpp as WebAssembly (grading/site/step/build.py). The target
# `step` compiles the file for this machine too, so that errors are found early.
add_library(step OBJECT EXCLUDE_FROM_ALL grading/site/step/step.cpp)
target_link_libraries(step PRIVATE fsdp_prediction)
target_precompile_headers(step REUSE_FROM fsdp_memory)
add_subdirectory(grading/peers)

file(GLOB fuzz_sources CONFIGURE_DEPENDS tests/fuzz/*.cpp)
if(FSDP_FUZZ)
  add_executable(fuzz EXCLUDE_FROM_ALL ${fuzz_sources})
  target_link_libraries(fuzz PRIVATE fsdp_options)
  target_link_options(fuzz PRIVATE -fsanitize=fuzzer)
  target_compile_definitions(fuzz PRIVATE FSDP_FUZZ)
  compile_tests_together(fuzz ${fuzz_sources})
  set(fuzz_sources)
endif()
tests_in(common/*.cpp common "fsdp_agreement;fsdp_given;fsdp_ranks;fsdp_trace")
tests_in(trainer/*.cpp trainer "fsdp_options;fsdp_tokenizer" ${fuzz_sources})
tests_in(programs/plan/*.cpp plan fsdp_plan)
tests_in(programs/quiz/*.cpp quiz fsdp_quiz)
tests_in(programs/reproduce/*.cpp reproduce "fsdp_reproduce;fsdp_options")
add_dependencies(reproduce_tests reproduce)  # a test runs it
tests_in(programs/check/*.cpp check fsdp_check)
tests_in(programs/why/*.cpp why fsdp_why)
# threads_tests run their ranks as threads, because the thread sanitizer does not see data races
# between processes. In a build with the thread sanitizer, ./fsdp test runs only these tests.
tests_in(threads/*.cpp threads reference_strategy)
# reference_tests test the course's own code together with the reference solutions. They also
# compare the numbers in the handouts with those of a run.
tests_in(reference/*.cpp reference "reference_strategy;fsdp_library;fsdp_options")
add_dependencies(reference_tests reference_train)  # a test runs it
# extension_tests test features of the reference solutions that go beyond the tasks, such as
# activation checkpointing.
tests_in(extensions/*.cpp extension reference_strategy)
tests_in(library/*.cpp library fsdp_library)
add_dependencies(library_tests own_plan own_training)  # tests run them
# properties_tests train random models with random options on ranks and in one process, and compare
# the results.
tests_in(properties/*.cpp properties "reference_strategy;fsdp_library")

# gpu_tests need a GPU. They are compiled in every build, but run only in a build with CUDA. Each
# test declares what it needs, and is skipped if the machine does not have it.
file(GLOB gpu_tests CONFIGURE_DEPENDS tests/gpu/*.cpp tests/properties/*program*.cpp
     tests/properties/habits.cpp tests/properties/models_under_test.cpp)
test_executable(fsdp_gpu_tests gpu_tests "fsdp_reproduce;fsdp_library" ${gpu_tests})

# hosts_tests emulate several hosts on one machine. The library fsdp_network, which makes the
# emulated hosts, uses no LibTorch.
add_library(fsdp_network STATIC EXCLUDE_FROM_ALL tests/hosts/network.cpp)
target_link_libraries(fsdp_network PUBLIC fsdp_base)
tests_in(hosts/test_*.cpp hosts fsdp_network)
add_dependencies(hosts_tests reference_train)

# Two stacks that test the tests of the tasks. `second` is another correct solution: it must pass
# all tests, because the tests may check only the contract. `unsharded` is a solution that shards
# nothing.
add_task0(second ${PROJECT_SOURCE_DIR}/grading/second_solution)
add_stack(second fsdp_given "${tasks}" ${PROJECT_SOURCE_DIR}/grading/second_solution)
add_stack(unsharded fsdp_given "${tasks}" ${PROJECT_SOURCE_DIR}/grading/unsharded
          ${PROJECT_SOURCE_DIR}/solutions)
