# The headers of the tasks lie in tasks/ alone: everything is compiled over them, and once. A stack
# is a choice of the code of the seven tasks, for example all of it from solutions/. The tests of a
# task are linked to each stack.

set(tasks task1_meta_init task2_flat_parameter task3_forward_hooks task4_backward_hooks
          task5_sharded_optimizer task6_prefetch task7_integration)

# The headers of the tasks, over what the tasks stand on.
add_library(fsdp_contracts INTERFACE)
foreach(task ${tasks})
  set(folder ${PROJECT_SOURCE_DIR}/tasks)
  target_include_directories(fsdp_contracts INTERFACE ${folder}/${task}
                                                      ${folder}/extensions/${task})
endforeach()
target_link_libraries(fsdp_contracts INTERFACE fsdp_given)

# Compiles the tests that follow as few files: half of the time of a file goes into what it
# includes. So up to seven tests are one file, but there are at least two, for two cores.
function(compile_tests_together target)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_precompile_headers(${target} REUSE_FROM fsdp_memory)
  list(LENGTH ARGN tests)
  math(EXPR batch "(${tests} + 1) / 2")
  if(batch GREATER 7)
    set(batch 7)
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON
                                             UNITY_BUILD_BATCH_SIZE ${batch})
endfunction()

# A test program of the sources that follow over `library`. `list` names the global property of the
# programs that are run together.
function(test_executable list target library)
  add_executable(${target} EXCLUDE_FROM_ALL ${ARGN})
  target_link_libraries(${target} PRIVATE ${library} fsdp_testing)
  compile_tests_together(${target} ${ARGN})
  set_property(GLOBAL APPEND PROPERTY ${list} ${target})
endfunction()

# fsdp_strategy connects the last task to the trainer. fsdp_train_main trains with it.
file(GLOB strategy_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/trainer/strategies/fsdp/*.cpp)
add_library(fsdp_strategy STATIC EXCLUDE_FROM_ALL ${strategy_sources})
set_target_properties(fsdp_strategy PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
target_link_libraries(fsdp_strategy PUBLIC fsdp_contracts fsdp_train)
target_precompile_headers(fsdp_strategy REUSE_FROM fsdp_memory)
add_library(fsdp_train_main OBJECT EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/programs/train.cpp)
target_link_libraries(fsdp_train_main PUBLIC fsdp_strategy fsdp_options)
target_precompile_headers(fsdp_train_main REUSE_FROM fsdp_memory)

# taskN_tests: the tests of a task, with the libraries that they are compared with. Those of the
# last task train.
foreach(task ${tasks})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${task}/*.cpp)
  if(sources AND TARGET fsdp_testing)
    string(REGEX MATCH "^task[0-9]" number ${task})
    add_library(${number}_tests OBJECT EXCLUDE_FROM_ALL ${sources})
    target_link_libraries(${number}_tests PUBLIC fsdp_contracts fsdp_testing)
    compile_tests_together(${number}_tests ${sources})
  endif()
endforeach()
if(TARGET task6_tests)
  target_link_libraries(task6_tests PUBLIC fsdp_prediction)
endif()
if(TARGET task7_tests)
  target_link_libraries(task7_tests PUBLIC fsdp_strategy)
endif()

# The library of the code of one task: the sources of `origin`, and those of its extensions, which
# may be missing, over the library of the task before it. Headers of their own are seen by no other
# task.
function(task_library target task origin base)
  set(folders ${origin}/${task} ${origin}/extensions/${task})
  list(TRANSFORM folders APPEND /*.cpp OUTPUT_VARIABLE patterns)
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  add_library(${target} STATIC EXCLUDE_FROM_ALL ${sources})
  target_include_directories(${target} PRIVATE ${folders})
  target_link_libraries(${target} PUBLIC ${base} fsdp_contracts)
  target_precompile_headers(${target} REUSE_FROM fsdp_memory)
endfunction()

# Sets `result` to the static libraries that these are linked to, directly or not, and those among
# them.
function(static_libraries_of result)
  set(left ${ARGN})
  set(seen)
  set(found)
  while(left)
    list(POP_FRONT left one)
    if(NOT TARGET ${one} OR one IN_LIST seen)
      continue()
    endif()
    list(APPEND seen ${one})
    get_target_property(type ${one} TYPE)
    if(type STREQUAL "STATIC_LIBRARY")
      list(APPEND found ${one})
    endif()
    get_target_property(bases ${one} INTERFACE_LINK_LIBRARIES)
    if(bases)
      list(APPEND left ${bases})
    endif()
  endwhile()
  set(${result} ${found} PARENT_SCOPE)
endfunction()

# A program of the stack `name`: the objects of `main` over the code of its tasks up to `number`,
# which are its libraries `own`, and over `base`, what comes before them. A student's code is
# isolated.
function(program_of_stack target main name own base)
  add_executable(${target} EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${main}>)
  get_target_property(needs ${main} INTERFACE_LINK_LIBRARIES)
  if(NOT name MATCHES "^mine")
    list(REVERSE own)
    target_link_libraries(${target} PRIVATE ${needs} ${own})
    return()
  endif()
  set(isolated ${PROJECT_BINARY_DIR}/own/${target}.o)
  set(libraries base comm memory nn optim)
  list(TRANSFORM libraries PREPEND fsdp_)
  static_libraries_of(others ${needs} ${base})
  list(REMOVE_ITEM others ${libraries})
  list(TRANSFORM others REPLACE "(.+)" "$<TARGET_FILE:\\1>")
  list(TRANSFORM libraries REPLACE "(.+)" "$<TARGET_FILE:\\1>")
  set(callers $<TARGET_OBJECTS:${main}> ${others})
  set(objects)
  foreach(library ${own})
    list(APPEND objects $<TARGET_OBJECTS:${library}>)
  endforeach()
  add_custom_command(
    OUTPUT ${isolated}
    COMMAND ${PROJECT_SOURCE_DIR}/cmake/isolate.sh
            ${isolated} ${callers} -- ${objects} -- ${libraries}
    DEPENDS ${PROJECT_SOURCE_DIR}/cmake/isolate.sh ${PROJECT_SOURCE_DIR}/scripts/look.sh
            ${callers} ${objects} ${libraries}
    COMMENT "Isolating the code of ${target}" COMMAND_EXPAND_LISTS VERBATIM)
  set_source_files_properties(${isolated} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  target_sources(${target} PRIVATE ${isolated})
  target_link_libraries(${target} PRIVATE ${needs} ${base})
endfunction()

# The tasks `wanted` of the stack `name`, the first over the library `base`, each from the first of
# the folders that follow that has it: the library NAME_taskN and its tests NAME_taskN_tests, listed
# as fsdp_NAME_tests; with the last task also NAME_train. Ends at a task that no folder has. Files
# may appear later, so a build looks for them anew (CONFIGURE_DEPENDS).
function(add_stack name base wanted)
  set(own)
  set(below ${base})
  foreach(task ${wanted})
    set(found)
    foreach(folder ${ARGN})
      file(GLOB sources CONFIGURE_DEPENDS ${folder}/${task}/*.cpp)
      if(sources AND NOT found)
        set(found ${folder})
      endif()
    endforeach()
    if(NOT found)
      return()
    endif()
    string(REGEX MATCH "^task[0-9]" number ${task})
    task_library(${name}_${number} ${task} ${found} ${below})
    set(below ${name}_${number})
    list(APPEND own ${below})
    if(TARGET ${number}_tests)
      program_of_stack(${name}_${number}_tests ${number}_tests ${name} "${own}" ${base})
      set_property(GLOBAL APPEND PROPERTY fsdp_${name}_tests ${name}_${number}_tests)
    endif()
  endforeach()
  if(own MATCHES "task7$")
    program_of_stack(${name}_train fsdp_train_main ${name} "${own}" ${base})
  endif()
endfunction()

# The stack `name`, all tasks from `origin`, and the stacks NAME_on_M: the solutions of tasks 1 to M
# and then tasks from `origin`. So a mistake in an earlier task does not make the tests of a later
# task fail. A task is in the stack with the most solutions before it; stack_of() of
# scripts/stacks.sh finds it.
function(add_own_stacks name origin)
  add_stack(${name} fsdp_given "${tasks}" ${origin})
  set(later ${tasks})
  foreach(m RANGE 1 6)
    list(POP_FRONT later)
    list(GET later 0 next)
    math(EXPR after "${m} + 1")
    if(TARGET reference_task${after})
      add_stack(${name}_on_${m} reference_task${m} ${next} ${origin})
    elseif(TARGET reference_task${m})
      add_stack(${name}_on_${m} reference_task${m} "${later}" ${origin})
    endif()
  endforeach()
endfunction()
