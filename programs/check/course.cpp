#include <check/course.h>

#include <sstream>
#include <string_view>

namespace fsdp {

extern const char* const kCourseText;  // course.toml: cmake/programs.cmake makes its source

namespace {

// What stands between quotes, one after the other: a string is a list of one.
std::vector<std::string> strings_in(std::string_view value) {
  std::vector<std::string> strings;
  for (size_t begin = value.find('"'); begin != value.npos; begin = value.find('"', begin)) {
    const size_t end = value.find('"', begin + 1);
    strings.emplace_back(value.substr(begin + 1, end - begin - 1));
    begin = end + 1;
  }
  return strings;
}

void set(Task& task, std::string_view key, const std::string& value) {
  if (key == "number") task.number = std::stoi(value);
  if (key == "name") task.name = strings_in(value).at(0);
  if (key == "sentinel") task.sentinel = strings_in(value).at(0);
}

void set(Problem& problem, std::string_view key, const std::string& value) {
  if (key == "number") problem.number = strings_in(value).at(0);
  if (key == "name") problem.name = strings_in(value).at(0);
  if (key == "points") problem.points = std::stoi(value);
  if (key == "suites") problem.suites = strings_in(value);
  if (key == "extension") problem.extension = problem.in_extensions = value == "true";
  if (key == "in_task" && value == "true") problem.in_extensions = false;
}

// Of TOML what course.toml needs: a key and its value on one line, under [[task]] or
// [[task.problem]].
std::vector<Task> parse(const std::string& text) {
  std::vector<Task> tasks;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find(" = ");
    if (line == "[[task]]") {
      tasks.emplace_back();
    } else if (line == "[[task.problem]]") {
      tasks.back().problems.emplace_back();
    } else if (!line.starts_with('#') && at != line.npos) {
      const std::string_view key = std::string_view(line).substr(0, at);
      Task& task = tasks.back();
      if (task.problems.empty())
        set(task, key, line.substr(at + 3));
      else
        set(task.problems.back(), key, line.substr(at + 3));
    }
  }
  return tasks;
}

}  // namespace

const std::vector<Task>& course() {
  static const std::vector<Task> tasks = parse(kCourseText);
  return tasks;
}

}  // namespace fsdp
