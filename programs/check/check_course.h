#pragma once

#include <check/settings.h>

namespace fsdp {

// Runs the tests that `settings` asks for and prints the points, one failure and the next step.
// Returns 0 if all selected problems are complete, else 1. An extension (an optional problem) that
// is not complete makes the result 1 only if the command line selects nothing but extensions.
// Throws std::runtime_error if a test program cannot be run, or if no test has the name in
// settings.test.
int check_course(const Settings& settings);

}  // namespace fsdp
