#pragma once

#include <check/score.h>
#include <check/settings.h>

#include <string>
#include <vector>

namespace fsdp {

// Returns a text that says whose code of the earlier tasks the tests of `task` use, if tasks 1 to
// `solutions` are the reference solutions and the tasks after them are the student's: "the
// reference solutions of tasks 1 to 3 and your own task 4" for task 5 with three solutions.
std::string base_text(int task, int solutions);

// Returns why the tests of the problem, or of the whole task if `problem` is null, did not run.
std::string reason(const TaskResult& task, const Problem* problem = nullptr);

// Returns the problem that the student should work on next, and a text that describes what to do.
// The problem is the first one that is not complete; but if its tests need an unwritten function of
// another problem, it is that other problem. Returns null and "" if there is none. Task 1 comes
// last if the student has not begun it and its solution is in this copy of the course.
std::pair<const Problem*, std::string> next_step(const Settings& settings,
                                                 const std::vector<TaskResult>& tasks);

// Prints a line with the label, a bar, the points and the counts of tests:
// "task 2 flat_parameter    ########........   8.0 of  20   8 passed, ...". If no test was started,
// it prints `why` instead of the counts.
void print_tally(const std::string& label, const Tally& tally, const std::string& why = "");

// Prints the lines of a task:
// - one line for each problem if the command line selects a task or a problem; the line of an
//   extension begins with "+";
// - one line for the whole task, without its extensions, unless the command line selects a problem;
// - the name of the task's memory test, if its failure makes all points of the task count 0.
void print_task(const Settings& settings, const TaskResult& task);

// Prints a line for each tested task from task 2 on: for which earlier tasks its tests used the
// reference solutions, and for which the student's own code. If the tests did not test the
// student's tasks/, prints only one line, which names the code that they tested.
void print_bases(const Settings& settings, const std::vector<TaskResult>& tasks);

// Prints the whole text of one failure, which telling_failure() (score.h) chooses. Then prints the
// names of all failed tests with their numbers of ranks, and how many tests were not run because a
// test hung.
void print_failures(const Settings& settings, const std::vector<TestResult>& tests);

// Returns the map of the course as a page of HTML that needs no other file: each task with its
// problems and points, the next problem, and which tasks can begin.
std::string html_map(const Settings& settings, const CourseResult& course);

// Prints how to replay the failure that print_failures() shows, if `folder` has its recording.
void print_recording(const std::string& folder, const std::vector<TestResult>& tests);

// Prints which test the timeline in `file` belongs to; prints nothing if no test wrote a timeline.
void print_timeline(const std::string& file, const std::vector<TestResult>& tests);

// Prints that `file` contains the output of the tests or, if `file` does not exist, that no test
// printed anything. Prints nothing if `file` is "".
void print_output(const std::string& file);

}  // namespace fsdp
