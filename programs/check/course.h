#pragma once

#include <string>
#include <vector>

namespace fsdp {

struct Problem {
  std::string number;  // "2.3"
  std::string name;    // "unshard"
  int points;
  std::vector<std::string> suites;  // of its tests
  bool extension{};                 // counts in a sum of its own: the task is complete without it
  bool in_extensions{};             // its functions are written in tasks/extensions/
};

struct Task {
  int number;
  std::string name;      // "flat_parameter"
  std::string sentinel;  // test that measures whether a rank holds less memory than the whole model
  std::vector<Problem> problems;

  int points() const;  // without extensions
};

// Returns the tasks that course.toml had when this program was built.
const std::vector<Task>& course();

}  // namespace fsdp
