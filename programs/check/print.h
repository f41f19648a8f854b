#pragma once

#include <check/score.h>
#include <check/settings.h>

#include <string>
#include <vector>

namespace fsdp {

// Returns the code over which the tests of `task` run, if the first `solutions` tasks are the
// reference's: "the reference solutions of tasks 1 to 3 and your own task 4".
std::string base_text(int task, int solutions);

// Returns why the tests of the problem, or of the whole task if `problem` is null, did not run.
std::string reason(const TaskResult& task, const Problem* problem = nullptr);

// Returns the problem to work on next, and a text that describes what to do. The problem is the
// first one that is not complete, or another one whose function the tests of the first one need.
// Returns null and "" if there is none. Task 1 comes last if it is not begun and its solution is in
// this copy of the course.
std::pair<const Problem*, std::string> next_step(const Settings& settings,
                                                 const std::vector<TaskResult>& tasks);

// Prints a line with a bar: "task 2 flat_parameter    ########........   8.0 of  20   8 passed,
// ...". If no test was started, it ends with `why` in place of the counts.
void print_tally(const std::string& label, const Tally& tally, const std::string& why = "");

// Prints the lines of a task:
// - one for each problem if the command line selects a task or a problem; the line of an extension
//   begins with "+";
// - one for the whole task, without its extensions, unless the command line selects a problem.
void print_task(const Settings& settings, const TaskResult& task);

// Prints over which code of the earlier tasks each task was tested. If the tested code is not that
// of tasks/, prints only which code it is.
void print_bases(const Settings& settings, const std::vector<TaskResult>& tasks);

// Prints the whole text of one failure, which telling_failure() (score.h) chooses. Then prints the
// names of all failed tests with their numbers of ranks, and how many tests were not run because a
// test hung.
void print_failures(const Settings& settings, const std::vector<TestResult>& tests);

// Returns the map of the course as a page of HTML that needs no other file: each task with its
// problems and points, the next problem, and which tasks can begin.
std::string html_map(const Settings& settings, const CourseResult& course);

// Prints how to replay the failure that print_failures() shows, if the folder has its recording.
void print_recording(const std::string& folder, const std::vector<TestResult>& tests);

// Prints the name of the test whose timeline is in the file, if a test has written one.
void print_timeline(const std::string& file, const std::vector<TestResult>& tests);

// Prints that `file` has the output of the tests, or that they printed nothing. Prints nothing if
// `file` is empty.
void print_output(const std::string& file);

}  // namespace fsdp
