# The flags of every target. All share one precompiled header, so all must be the same.
add_library(fsdp_flags INTERFACE)
target_link_libraries(fsdp_flags INTERFACE LibTorch::LibTorch Threads::Threads
                      nlohmann_json::nlohmann_json CLI11::CLI11 GTest::gtest)
target_compile_options(fsdp_flags INTERFACE -Wall -Wextra -Wno-unused-parameter)

# On in a folder first configured in CI, but for a student's copy; a folder never changes from one to
# the other, as all would be rebuilt.
set(in_ci OFF)
if(NOT "$ENV{CI}" STREQUAL "" AND EXISTS ${PROJECT_SOURCE_DIR}/programs/reproduce)
  set(in_ci ON)
endif()
option(FSDP_WERROR "Let warnings fail the build, those of what is graded apart" ${in_ci})
if(FSDP_WERROR)
  add_compile_options(-Werror)  # of what comes after, until maintainers.cmake takes it back
endif()

set(FSDP_SANITIZE "" CACHE STRING "What -fsanitize= is given: address,undefined or thread")
if(FSDP_SANITIZE)
  target_compile_options(fsdp_flags INTERFACE -fsanitize=${FSDP_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(fsdp_flags INTERFACE -fsanitize=${FSDP_SANITIZE})
endif()
