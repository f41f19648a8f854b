# A stack is the seven tasks as libraries, all compiled against one another. Every test and program
# is compiled once per stack: an object shared between stacks would mix two layouts of one class.

set(tasks task1_meta_init task2_flat_parameter task3_forward_hooks task4_backward_hooks
          task5_sharded_optimizer task6_prefetch task7_integration)

# A test program of the sources that follow over `library`. `list` names the global property of the
# programs that are run together.
function(test_executable list target library)
  add_executable(${target} EXCLUDE_FROM_ALL ${ARGN})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${target} PRIVATE ${library} fsdp_testing)
  target_precompile_headers(${target} REUSE_FROM fsdp_pch)
  # What the tests share includes no header of a task, so an edit of one must not compile it again.
  list(FILTER ARGN INCLUDE REGEX "/test_[a-z0-9_]*\\.cpp$")
  get_target_property(shared ${target} SOURCES)
  list(REMOVE_ITEM shared ${ARGN})
  set_source_files_properties(${shared} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  # Half of the time of a file goes into what it includes. So up to three tests are one file, but the
  # program is at least two, for two cores.
  list(LENGTH ARGN tests)
  math(EXPR batch "(${tests} + 1) / 2")
  if(batch GREATER 3)
    set(batch 3)
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD "${FSDP_UNITY}"
                                             UNITY_BUILD_BATCH_SIZE ${batch})
  set_property(GLOBAL APPEND PROPERTY ${list} ${target})
endfunction()

# The library of one task: its sources in `origin` and those of its extensions, which may be missing, over
# the library of the task before it. The include folders that it adds hold headers of this task alone: in
# a stack of two origins, a header always comes from the origin of its task.
function(task_library target task origin base)
  set(folders ${origin}/${task} ${origin}/extensions/${task})
  list(TRANSFORM folders APPEND /*.cpp OUTPUT_VARIABLE patterns)
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  add_library(${target} STATIC EXCLUDE_FROM_ALL ${sources})
  target_include_directories(${target} PUBLIC ${folders})
  target_link_libraries(${target} PUBLIC ${base})
  target_precompile_headers(${target} REUSE_FROM fsdp_pch)
endfunction()

# The library NAME_strategy, which connects the last task of a stack to the trainer.
function(train_strategy name last_task)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/trainer/strategies/fsdp/*.cpp)
  add_library(${name}_strategy STATIC EXCLUDE_FROM_ALL ${sources})
  set_target_properties(${name}_strategy PROPERTIES UNITY_BUILD "${FSDP_UNITY}"
                        UNITY_BUILD_BATCH_SIZE 0)
  target_link_libraries(${name}_strategy PUBLIC ${last_task} fsdp_train)
  target_precompile_headers(${name}_strategy REUSE_FROM fsdp_pch)
endfunction()

# One task of the stack `name`, from `origin`, over `base`: the library NAME_taskN and its tests
# NAME_taskN_tests, which are listed as fsdp_NAME_tests. Those of the last task train.
function(add_task name task origin base)
  string(REGEX MATCH "^task[0-9]" number ${task})
  task_library(${name}_${number} ${task} ${origin} ${base})
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

# The tasks `wanted` of the stack `name`, the first over the library `base`, each from the first of the
# folders that follow that has it; with the last task also the training program NAME_train. Ends at a
# task that no folder has. Files may appear later, so a build looks for them anew (CONFIGURE_DEPENDS).
function(add_stack name base wanted)
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
    add_task(${name} ${task} ${found} ${base})
    string(REGEX MATCH "^task[0-9]" number ${task})
    set(base ${name}_${number})
  endforeach()
  if(TARGET ${name}_strategy)
    add_executable(${name}_train EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/programs/train.cpp)
    target_link_libraries(${name}_train PRIVATE ${name}_strategy fsdp_options)
    target_precompile_headers(${name}_train REUSE_FROM fsdp_pch)
  endif()
endfunction()

# The stack `name`, all tasks from `origin`, and the stacks NAME_on_M: the solutions of tasks 1 to M and
# then tasks from `origin`. So a mistake in an earlier task does not make the tests of a later task
# fail. A task is in the stack with the most solutions before it; stack_of() of ./fsdp finds it.
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
