#pragma once

#include <check/settings.h>

namespace fsdp {

// Runs the tests that `settings` asks for and prints the points, one failure and the next step.
// Returns 0 if every wanted test passed, else 1. Throws std::runtime_error if a test program cannot
// be run.
int check_course(const Settings& settings);

}  // namespace fsdp
