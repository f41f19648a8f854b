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
  std::string name;  // "flat_parameter"
  // The test that measures whether a rank holds less memory than the whole model; "": none.
  std::string sentinel;
  std::vector<Problem> problems;

  int points() const;                                 // without extensions
  bool is_optional() const { return points() == 0; }  // all its problems are extensions
};

// Returns the tasks that course.toml had when this program was built. Task n is element n.
const std::vector<Task>& course();

}  // namespace fsdp
