#pragma once

#include <string>
#include <vector>

namespace fsdp {

struct Problem {
  std::string number;  // number of the problem: "2.3" is problem 3 of task 2
  std::string name;    // name of the problem: "unshard"
  int points;
  std::vector<std::string> suites;  // the GoogleTest suites with the problem's tests
  bool extension{};  // optional: its points are summed apart, and its task is complete without it
  bool in_extensions{};  // students write the problem's functions in tasks/extensions/
};

struct Task {
  int number;
  std::string name;  // name of the task: "flat_parameter"
  // The name of the task's test that measures whether a rank holds less memory than the whole
  // model; "": the task has no such test.
  std::string sentinel;
  std::vector<Problem> problems;

  // Most points that the task can give: the sum over its problems, without extensions.
  int points() const;
  // Returns whether all problems of the task are extensions.
  bool is_optional() const { return points() == 0; }
};

// Returns the tasks that course.toml had when this program was built. Task n is element n.
const std::vector<Task>& course();

}  // namespace fsdp
