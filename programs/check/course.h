#pragma once

#include <string>
#include <vector>

namespace fsdp {

struct Problem {
  std::string number;  // "2.3"
  std::string name;    // "unshard"
  int points;
  std::vector<std::string> suites;  // of its tests
  bool extension{};                 // counts apart: the task is complete without it
  bool in_extensions{};             // its functions are written in tasks/extensions/
};

struct Task {
  int number;
  std::string name;      // "flat_parameter"
  std::string sentinel;  // the test that measures whether a rank holds less than the whole takes
  std::vector<Problem> problems;

  int points() const;  // without extensions
};

// What course.toml said when this program was built.
const std::vector<Task>& course();

}  // namespace fsdp
