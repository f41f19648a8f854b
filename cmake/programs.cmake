# This file defines the programs that students also run, each from one file, and two targets.
# `all_tests` builds every test program and the programs that the tests run; tests.txt lists the
# test programs for ./fsdp test, one per line. `everything` builds all programs and tests, for
# ./fsdp lint.

# program(NAME LIBRARY SOURCE): defines the program NAME from the file SOURCE, and links it with
# LIBRARY.
function(program name library source)
  add_executable(${name} EXCLUDE_FROM_ALL ${source})
  target_link_libraries(${name} PRIVATE ${library} fsdp_command_line)
  target_precompile_headers(${name} REUSE_FROM fsdp_memory)
endfunction()

# embed_text(LIBRARY FILE NAME): compiles the text of FILE into LIBRARY, as the C++ constant
# fsdp::NAME. If FILE changes, the next build runs CMake again.
function(embed_text library file name)
  file(READ ${file} text)
  set(source ${PROJECT_BINARY_DIR}/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT [[
namespace fsdp {
extern const char* const @name@;
const char* const @name@ = R"text(@text@)text";
}  // namespace fsdp
]])
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON
                                                   SKIP_PRECOMPILE_HEADERS ON)
  target_sources(${library} PRIVATE ${source})
endfunction()

program(hello "fsdp_ranks;fsdp_trace" programs/hello.cpp)
program(export_model "fsdp_exchange;fsdp_options" programs/export_model.cpp)
program(inspect fsdp_state programs/inspect.cpp)
program(generate "fsdp_options;fsdp_tokenizer" programs/generate.cpp)
program(tokenize "fsdp_data;fsdp_tokenizer" programs/tokenize.cpp)
program(diff fsdp_diff programs/diff.cpp)
program(audit "fsdp_options;fsdp_receipt" programs/audit.cpp)

# The program check contains no code of the tasks: it starts their test programs. So it needs no
# LibTorch, and is the first program that a student can run.
file(GLOB check_sources CONFIGURE_DEPENDS programs/check/*.cpp)
add_library(fsdp_check STATIC EXCLUDE_FROM_ALL ${check_sources})
set_target_properties(fsdp_check PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
# programs/check/settings.cpp is compiled by itself, in parallel, because CLI11, which it includes,
# takes as long to compile as all other files of check.
set_source_files_properties(programs/check/settings.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
target_include_directories(fsdp_check PUBLIC programs)
target_link_libraries(fsdp_check PUBLIC fsdp_base fsdp_command_line)
embed_text(fsdp_check course.toml kCourseText)
add_executable(check EXCLUDE_FROM_ALL programs/check.cpp)
target_link_libraries(check PRIVATE fsdp_check)
# The program why watches a test program from outside, so it needs no LibTorch either.
file(GLOB why_sources CONFIGURE_DEPENDS programs/why/*.cpp)
add_library(fsdp_why STATIC EXCLUDE_FROM_ALL ${why_sources})
set_target_properties(fsdp_why PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
target_include_directories(fsdp_why PUBLIC programs)
target_link_libraries(fsdp_why PUBLIC fsdp_base)
add_executable(why EXCLUDE_FROM_ALL programs/why.cpp)
target_link_libraries(why PRIVATE fsdp_why)

# A student's copy of the repository has neither programs/reproduce nor maintainers.cmake.
if(EXISTS ${PROJECT_SOURCE_DIR}/programs/reproduce)
  include(maintainers)
endif()

get_property(common_tests GLOBAL PROPERTY fsdp_common_tests)
get_property(reference_tests GLOBAL PROPERTY fsdp_reference_tests)
set(tests ${common_tests} ${reference_tests})
if(FSDP_CUDA AND TARGET gpu_tests)
  list(APPEND tests gpu_tests)
endif()
if(FSDP_SANITIZE STREQUAL "thread")
  set(tests threads_tests)
endif()
# add_programs(TARGET PROGRAM...): makes TARGET build those PROGRAMs that are defined in this copy
# of the repository.
function(add_programs target)
  foreach(program ${ARGN})
    if(TARGET ${program})
      add_dependencies(${target} ${program})
    endif()
  endforeach()
endfunction()
add_custom_target(all_tests DEPENDS ${tests})
add_programs(all_tests run_tests)
add_custom_target(everything DEPENDS all_tests audit check diff export_model generate hello inspect
                                     tokenize why)
add_programs(everything appendix_programs gpu_tests own_model own_plan own_training plan quiz
             reproduce transport_bench reference_train mine_train fsdp step)
# `cmake --build` without a target builds the target `visitors`, the library and the library's
# examples.
add_custom_target(visitors ALL)
add_programs(visitors check hello run_tests reference_train)
if(NOT TARGET reference_train)
  add_programs(visitors mine_train)
endif()

# Defines the tests that ctest runs: one for each test program. In a handout, one for each task,
# which runs ./fsdp check for the task.
enable_testing()
foreach(test ${tests})
  string(REGEX MATCH "task[0-7]|library|gpu" label ${test})
  if(NOT label)
    set(label common)
  endif()
  add_test(NAME ${test} COMMAND run_tests $<TARGET_FILE:${test}>)
  set_tests_properties(${test} PROPERTIES LABELS ${label}
    ENVIRONMENT "FSDP_ROOT=${PROJECT_SOURCE_DIR};ASAN_OPTIONS=handle_segv=0:handle_abort=0")
endforeach()
if(NOT tests)
  foreach(number RANGE 0 7)
    add_test(NAME task${number} COMMAND ${PROJECT_SOURCE_DIR}/fsdp check ${number})
    set_tests_properties(task${number} PROPERTIES LABELS task${number})
  endforeach()
endif()
list(TRANSFORM tests PREPEND "$<TARGET_FILE:" OUTPUT_VARIABLE files)
list(TRANSFORM files APPEND ">\n")
list(JOIN files "" files)
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/tests.txt CONTENT "${files}")
