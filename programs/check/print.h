#pragma once

#include <check/settings.h>
#include <check/task_result.h>

#include <string>
#include <vector>

namespace fsdp {

// A line with a bar: "task 2 flat_parameter    ########........   8.0 of  20   8 passed, ...".
void print_tally(const std::string& label, const Tally& tally, bool compiles = true);

// The lines of a task: one for each problem if only a part of the course is wanted, and one for the
// whole task.
void print_task(const Settings& settings, const TaskResult& task);

// Which code the tasks were tested over.
void print_bases(const Settings& settings, const std::vector<TaskResult>& tasks);

// One failure in full: which promise does not hold, what the ranks did, where it shows. Then the
// names of all tests that failed, with their numbers of ranks.
void print_failures(const std::vector<TestResult>& tests);

// The first problem that is not complete, and what to do.
void print_next_step(const std::vector<TaskResult>& tasks);

}  // namespace fsdp
