# A stack is the seven tasks as libraries, all compiled against one another. Every test and program
# is compiled once per stack: an object shared between stacks would mix two layouts of one class.

set(tasks task1_meta_init task2_flat_parameter task3_forward_hooks task4_backward_hooks
          task5_sharded_optimizer task6_prefetch task7_integration)

# Solutions may be released into a folder that has been configured: then this runs again.
file(GLOB released CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/solutions/task*)

# A test program of the sources that follow over `library`. `list` names the global property of the
# programs that are run together.
function(test_executable list target library)
  add_executable(${target} EXCLUDE_FROM_ALL ${ARGN})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${target} PRIVATE ${library} fsdp_testing)
  target_precompile_headers(${target} REUSE_FROM fsdp_pch)
  set_property(GLOBAL APPEND PROPERTY ${list} ${target})
endfunction()

# The library of one task: the sources in `folder`, over the library of the task before it.
# It adds exactly one include folder, so a header always belongs to its own stack.
function(task_library target folder base)
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  add_library(${target} STATIC EXCLUDE_FROM_ALL ${sources})
  target_include_directories(${target} PUBLIC ${folder})
  target_link_libraries(${target} PUBLIC ${base})
  target_precompile_headers(${target} REUSE_FROM fsdp_pch)
endfunction()

# The library NAME_strategy, which connects the last task of a stack to the trainer.
function(train_strategy name last_task)
  add_library(${name}_strategy STATIC EXCLUDE_FROM_ALL
              ${PROJECT_SOURCE_DIR}/programs/strategy/fsdp_strategy.cpp)
  target_include_directories(${name}_strategy PUBLIC ${PROJECT_SOURCE_DIR}/programs)
  target_link_libraries(${name}_strategy PUBLIC ${last_task} fsdp_train)
  target_precompile_headers(${name}_strategy REUSE_FROM fsdp_pch)
endfunction()

# One task of the stack `name`, from `folder`, over `base`: the library NAME_taskN and its tests
# NAME_taskN_tests, which are listed as fsdp_NAME_tests. Those of the last task train.
function(add_task name task folder base)
  string(REGEX MATCH "^task[0-9]" number ${task})
  task_library(${name}_${number} ${folder} ${base})
  file(GLOB tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${task}/*.cpp)
  set(tested ${name}_${number})
  if(number STREQUAL task6)
    list(APPEND tested fsdp_prediction)  # which its steps are compared with
  elseif(number STREQUAL task7)
    train_strategy(${name} ${tested})
    set(tested ${name}_strategy)
  endif()
  if(tests)
    test_executable(fsdp_${name}_tests ${name}_${number}_tests "${tested}" ${tests})
  endif()
endfunction()

# The stack `name`, every task from `origin`, or from a second folder what that lacks; and the
# training program NAME_train.
function(add_stack name origin)
  set(base fsdp_given)
  foreach(task ${tasks})
    string(REGEX MATCH "^task[0-9]" number ${task})
    foreach(folder ${origin} ${ARGN})
      if(EXISTS ${folder}/${task})
        add_task(${name} ${task} ${folder}/${task} ${base})
        set(base ${name}_${number})
        break()
      endif()
    endforeach()
  endforeach()
  if(EXISTS ${origin}/task7_integration)
    add_executable(${name}_train EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/programs/train.cpp)
    target_link_libraries(${name}_train PRIVATE ${name}_strategy fsdp_train_options)
    target_precompile_headers(${name}_train REUSE_FROM fsdp_pch)
  endif()
endfunction()

# The stacks `name`: in each, one task comes from `origin` and the earlier tasks come from the stack
# `base`. So a mistake in an earlier task does not make the tests of a later task fail.
function(add_single_tasks name origin base)
  set(below fsdp_given)
  foreach(task ${tasks})
    string(REGEX MATCH "^task[0-9]" number ${task})
    if(EXISTS ${origin}/${task} AND TARGET ${below})
      add_task(${name} ${task} ${origin}/${task} ${below})
    endif()
    set(below ${base}_${number})
  endforeach()
endfunction()
