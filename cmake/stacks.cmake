# The headers of the tasks are only in tasks/, and all code is compiled once, with these headers. A
# stack is a selection of the code of the seven tasks, for example all of it from solutions/. Each
# stack has its own test programs: the tests of a task, linked with the stack's code. Task 0 is
# optional, so it is in no stack: only its own tests and the programs that train contain it. If it
# does not compile, everything else still does.

set(task0 task0_ddp)
set(tasks task1_meta_init task2_flat_parameter task3_forward_hooks task4_backward_hooks
          task5_sharded_optimizer task6_prefetch task7_integration)

# fsdp_contracts: the headers of the tasks, and the libraries of the course that the tasks use.
add_library(fsdp_contracts INTERFACE)
foreach(task ${task0} ${tasks})
  set(folder ${PROJECT_SOURCE_DIR}/tasks)
  target_include_directories(fsdp_contracts INTERFACE ${folder}/${task}
                                                      ${folder}/extensions/${task})
endforeach()
target_link_libraries(fsdp_contracts INTERFACE fsdp_given)

# compile_tests_together(TARGET SOURCE...): compiles several sources as one file, because half of
# the time to compile a source is spent on its includes. Up to ten sources are one file, but there
# are at least two files, for two cores.
function(compile_tests_together target)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_precompile_headers(${target} REUSE_FROM fsdp_memory)
  list(LENGTH ARGN tests)
  math(EXPR batch "(${tests} + 1) / 2")
  if(batch GREATER 10)
    set(batch 10)
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON
                                             UNITY_BUILD_BATCH_SIZE ${batch})
endfunction()

# test_executable(LIST TARGET LIBRARY SOURCE...): defines a test program from the sources and
# LIBRARY, and adds it to the global property LIST of the programs that are run together.
function(test_executable list target library)
  add_executable(${target} EXCLUDE_FROM_ALL ${ARGN})
  target_link_libraries(${target} PRIVATE ${library} fsdp_testing)
  compile_tests_together(${target} ${ARGN})
  set_property(GLOBAL APPEND PROPERTY ${list} ${target})
endfunction()

# fsdp_strategy connects task 7 to the trainer. fsdp_train_main is the main program of ./fsdp train,
# which trains with fsdp_strategy.
file(GLOB strategy_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/trainer/strategies/fsdp/*.cpp)
add_library(fsdp_strategy STATIC EXCLUDE_FROM_ALL ${strategy_sources})
set_target_properties(fsdp_strategy PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
# ddp_reduction.cpp is compiled as an object of its own, because it calls task 0, which only the
# programs that train contain.
set_source_files_properties(${PROJECT_SOURCE_DIR}/trainer/strategies/fsdp/ddp_reduction.cpp
                            PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
target_link_libraries(fsdp_strategy PUBLIC fsdp_contracts fsdp_train)
target_precompile_headers(fsdp_strategy REUSE_FROM fsdp_memory)
add_library(fsdp_train_main OBJECT EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/programs/train.cpp)
target_link_libraries(fsdp_train_main PUBLIC fsdp_strategy fsdp_options)
target_precompile_headers(fsdp_train_main REUSE_FROM fsdp_memory)

# taskN_tests: the compiled tests of task N, with the libraries that they need. The tests of task 7
# train, so they also need fsdp_strategy.
foreach(task ${task0} ${tasks})
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

# task_library(TARGET TASK FOLDER BASE): defines the library TARGET of one task, from the sources in
# FOLDER of the task and of its extensions; extensions may be missing. The library links to BASE,
# the library of the task before it. Other tasks do not find the headers in these source folders.
function(task_library target task origin base)
  set(folders ${origin}/${task} ${origin}/extensions/${task})
  list(TRANSFORM folders APPEND /*.cpp OUTPUT_VARIABLE patterns)
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  add_library(${target} STATIC EXCLUDE_FROM_ALL ${sources})
  target_include_directories(${target} PRIVATE ${folders})
  target_compile_options(${target} PRIVATE ${fsdp_line_numbers})
  target_link_libraries(${target} PUBLIC ${base} fsdp_contracts)
  target_precompile_headers(${target} REUSE_FROM fsdp_memory)
endfunction()

# static_libraries_of(RESULT TARGET...): sets RESULT to all static libraries among the targets and
# among the libraries to which they link, directly or not.
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

# program_of_stack(TARGET MAIN NAME OWN BASE): defines the program TARGET of the stack NAME, from
# the objects of MAIN, the libraries OWN with the code of the stack's tasks, and BASE, the library
# to which the first of these tasks links. If the stack has a student's code, isolate.sh isolates
# this code first.
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

# add_task0(NAME FOLDER): if the folder has the code of task 0, defines the library NAME_task0 and
# its tests.
function(add_task0 name origin)
  file(GLOB sources CONFIGURE_DEPENDS ${origin}/${task0}/*.cpp)
  if(NOT sources)
    return()
  endif()
  task_library(${name}_task0 ${task0} ${origin} fsdp_given)
  if(TARGET task0_tests)
    program_of_stack(${name}_task0_tests task0_tests ${name} ${name}_task0 fsdp_given)
    set_property(GLOBAL APPEND PROPERTY fsdp_${name}_tests ${name}_task0_tests)
  endif()
endfunction()

# add_stack(NAME BASE WANTED FOLDER...): defines the tasks WANTED of the stack NAME. The library of
# the first task links to the library BASE. The code of each task is from the first FOLDER that has
# it. Targets: the library NAME_taskN and its tests NAME_taskN_tests, which are added to the
# property fsdp_NAME_tests; if the stack has task 7, also NAME_train, which contains the task 0 of
# the student or of the reference. Stops at a task that no folder has. Source files may appear
# later, so each build looks for them again (CONFIGURE_DEPENDS).
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
    set(replicas reference_task0)
    if(name MATCHES "^mine")
      set(replicas mine_task0)
    endif()
    program_of_stack(${name}_train fsdp_train_main ${name} "${replicas};${own}" ${base})
  endif()
endfunction()

# add_own_stacks(NAME FOLDER): defines the stack NAME, with the code of all tasks from FOLDER, and
# the stacks NAME_on_M, with the reference solutions of tasks 1 to M and then the code of later
# tasks from FOLDER. With a stack NAME_on_M, a mistake in an earlier task does not make the tests of
# a later task fail. Each task is only in the NAME_on_M with the most solutions before it;
# stack_of() of scripts/stacks.sh selects the stack that the tests of a task use.
function(add_own_stacks name origin)
  add_task0(${name} ${origin})
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
