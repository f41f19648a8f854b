#pragma once

#include <check/course.h>

#include <string>
#include <vector>

namespace fsdp {

// What the command line of `check` asks for.
struct Settings {
  std::string what{};  // "" for everything, a task ("3") or a problem ("3.2")
  int repeat{1};
  std::vector<int> worlds{};          // numbers of ranks; empty: all
  std::string test{};                 // the name of the only test to run; empty: all
  std::string trace{};                // a file for the timeline; empty: none
  std::string output{};               // a file for what the tests print; empty: none
  std::string record{};               // a folder for recordings of failed tests; empty: none
  std::string json{};                 // a file for the results; empty: none
  std::string page{};                 // a file for the map; empty: none
  std::vector<std::string> stacks{};  // [tasks] whose code the task's tests run
  int seconds{86'400};                // for all tests of a task
  bool stop_hanging{};                // no test of a problem runs after one that hangs
  std::vector<int> broken{};          // tasks that do not compile
  std::vector<int> rejected{};        // tasks that scripts/look.sh rejects
  std::vector<int> blank{};  // tasks in which nothing is written yet: their tests do not run
  std::string bin{};         // the folder of the test programs

  const std::string& stack(const Task& task) const;
  std::string program(const Task& task) const;   // of the task's tests
  std::string unusable(const Task& task) const;  // why its tests cannot run, empty if they can
  bool runs(const Task& task) const;             // whether they do

  bool wants(const Task& task) const;
  bool wants(const Problem& problem) const;
  bool wants_whole_tasks() const { return what.size() <= 1; }
  // Of how many tasks before `task` its tests run the solutions; of those after them, the student's
  // own. -1 if the task itself is not the student's.
  int solutions_under(const Task& task) const;

  // GoogleTest's filter for those tests of `task` that are wanted.
  std::string filter(const Task& task) const;
};

// Reads the command line. Ends the program with status 2 and one line on stderr if it is wrong.
Settings parse_settings(int argc, char** argv);

}  // namespace fsdp
