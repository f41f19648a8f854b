# The programs that belong to no stack, each from one file; the targets `all_tests` (every test
# executable; tests.txt lists them for ./fsdp test, one a line) and `everything`.

add_custom_target(everything)

foreach(program check reproduce transport_bench)
  if(EXISTS ${PROJECT_SOURCE_DIR}/programs/${program}.cpp)
    add_executable(${program} EXCLUDE_FROM_ALL programs/${program}.cpp)
    target_link_libraries(${program} PRIVATE fsdp_common)
    target_precompile_headers(${program} REUSE_FROM fsdp_pch)
    add_dependencies(everything ${program})
  endif()
endforeach()

# What reproduce consists of. It trains through the train program, but runs the strict test itself,
# with the reference solutions.
file(GLOB reproduce_sources CONFIGURE_DEPENDS programs/reproduce/*.cpp)
add_library(fsdp_reproduce STATIC EXCLUDE_FROM_ALL ${reproduce_sources})
target_include_directories(fsdp_reproduce PUBLIC programs)
target_link_libraries(fsdp_reproduce PUBLIC reference_task7)
target_precompile_headers(fsdp_reproduce REUSE_FROM fsdp_pch)
target_link_libraries(reproduce PRIVATE fsdp_reproduce)
file(GLOB reproduce_tests CONFIGURE_DEPENDS tests/programs/reproduce/*.cpp)
test_executable(fsdp_common_tests reproduce_tests fsdp_reproduce ${reproduce_tests})

# Ranks as threads, for the thread sanitizer, which can make nothing of processes: with it, these
# are the only tests.
file(GLOB threads_tests CONFIGURE_DEPENDS tests/threads/*.cpp)
test_executable(fsdp_common_tests threads_tests reference_task7 ${threads_tests})

# Knows the course, not the tasks: it runs their test programs.
file(GLOB check_sources CONFIGURE_DEPENDS programs/check/*.cpp)
add_library(fsdp_check STATIC EXCLUDE_FROM_ALL ${check_sources})
target_include_directories(fsdp_check PUBLIC programs)
target_link_libraries(fsdp_check PUBLIC fsdp_common)
target_precompile_headers(fsdp_check REUSE_FROM fsdp_pch)
target_link_libraries(check PRIVATE fsdp_check)
file(GLOB check_tests CONFIGURE_DEPENDS tests/programs/check/*.cpp)
test_executable(fsdp_common_tests check_tests fsdp_check ${check_tests})

# The README's example; it builds with the tests.
add_executable(own_model EXCLUDE_FROM_ALL examples/own_model.cpp)
target_link_libraries(own_model PRIVATE reference_task7)
target_precompile_headers(own_model REUSE_FROM fsdp_pch)

get_property(common_tests GLOBAL PROPERTY fsdp_common_tests)
get_property(reference_tests GLOBAL PROPERTY fsdp_reference_tests)
set(tests ${common_tests} ${reference_tests})
if(FSDP_SANITIZE STREQUAL "thread")
  set(tests threads_tests)
endif()
add_custom_target(all_tests DEPENDS ${tests} own_model)
add_dependencies(everything all_tests)
foreach(stack reference mine)
  if(TARGET ${stack}_train)
    add_dependencies(everything ${stack}_train)
  endif()
endforeach()
list(TRANSFORM tests PREPEND "$<TARGET_FILE:" OUTPUT_VARIABLE files)
list(TRANSFORM files APPEND ">\n")
list(JOIN files "" files)
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/tests.txt CONTENT "${files}")
