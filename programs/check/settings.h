#pragma once

#include <check/course.h>

#include <string>
#include <vector>

namespace fsdp {

// The command line of `check`.
struct Settings {
  std::string what{};  // the task ("3") or problem ("3.2") to test; "": everything
  int repeat{1};
  std::vector<int> worlds{};  // numbers of ranks to test on; empty: all
  std::string test{};         // the name of the only test to run; empty: all
  std::string trace{};        // path of the file that gets the timeline of one test; empty: none
  std::string output{};       // path of the file that gets the output of the tests; empty: none
  std::string record{};  // path of the folder that gets recordings of failed tests; empty: none
  std::string json{};    // path of the JSON file that gets the results; empty: none
  std::string page{};    // path of the file that gets the HTML map of the course; empty: none
  // Element n: the stack (cmake/stacks.cmake) with the code that the tests of task n run.
  std::vector<std::string> stacks{};
  int seconds{86'400};          // [s] limit for all tests of a task together
  bool stop_hanging{};          // true: after a test that hangs, run no other test of its problem
  std::vector<int> broken{};    // numbers of the tasks that do not compile
  std::vector<int> rejected{};  // numbers of the tasks with calls that scripts/look.sh forbids
  std::vector<int> blank{};     // numbers of the tasks without code of the student; not tested
  std::string bin{};            // path of the folder with the test programs

  const std::string& stack(const Task& task) const;
  std::string program(const Task& task) const;  // path of the task's test program
  // Why the task's tests cannot run, such as "does not compile"; "": they can.
  std::string unusable(const Task& task) const;
  // Returns whether the task can be tested: something is written in it, and it is not unusable().
  bool runs(const Task& task) const;

  bool wants(const Task& task) const;
  bool wants(const Problem& problem) const;
  bool wants_whole_tasks() const { return what.size() <= 1; }
  // Returns how many solutions the tests of `task` use: k means the reference solutions of tasks 1
  // to k, and the student's own tasks from k + 1 on. Returns -1 if the tested code of `task` is not
  // the student's.
  int solutions_under(const Task& task) const;

  // Returns the GoogleTest filter that selects the wanted tests of `task`.
  std::string filter(const Task& task) const;
};

// Reads the command line. If the command line is wrong, prints one line on stderr and ends the
// program with status 2.
Settings parse_settings(int argc, char** argv);

}  // namespace fsdp
