#pragma once

#include <check/score.h>
#include <check/settings.h>

#include <string>
#include <vector>

namespace fsdp {

// "the reference solutions of tasks 1 to 3 and your own task 4": what `task` stands on, if
// `solutions` tasks under it are not the student's.
std::string base_text(int task, int solutions);

// Why the tests of the problem, or of the whole task, did not run.
std::string reason(const TaskResult& task, const Problem* problem = nullptr);

// The first problem that is not complete, or the one that its tests need before, and what to do.
// Null and nothing if there is none. Task 1 comes last if it is not begun and its solution is in
// this copy.
std::pair<const Problem*, std::string> next_step(const Settings& settings,
                                                 const std::vector<TaskResult>& tasks);

// A line with a bar: "task 2 flat_parameter    ########........   8.0 of  20   8 passed, ...". If
// no test ran to its end, `why` says more than "not started".
void print_tally(const std::string& label, const Tally& tally, const std::string& why = "");

// The lines of a task: one for each problem if only a part of the course is wanted, and one for the
// whole task, which leaves out the extensions: their lines begin with "+".
void print_task(const Settings& settings, const TaskResult& task);

// What each task was tested over.
void print_bases(const Settings& settings, const std::vector<TaskResult>& tasks);

// One failure in full: which promise does not hold, what the ranks did, where it shows. Then the
// names of all tests that failed, with their numbers of ranks, and how many were not run after one
// that hangs.
void print_failures(const std::vector<TestResult>& tests);

// The map of the course as a page of HTML that needs no other file: each task with its problems and
// points, what is next, and which tasks can begin.
std::string html_map(const Settings& settings, const CourseResult& course);

// How to replay the failure that print_failures() shows, if the folder has its recording.
void print_recording(const std::string& folder, const std::vector<TestResult>& tests);

// The test whose timeline the file has, if it is there.
void print_timeline(const std::string& file, const std::vector<TestResult>& tests);

// Prints whether `file` has what the tests printed, or that they printed nothing. Prints nothing if
// no file was named.
void print_output(const std::string& file);

}  // namespace fsdp
