#include <check/course.h>
#include <command_line/toml.h>

namespace fsdp {

// The text of course.toml, which cmake/programs.cmake compiles in.
extern const char* const kCourseText;

namespace {

Problem read_problem(const TomlTable& toml) {
  toml.allow_only({"number", "name", "points", "suites", "extension", "in_task"});
  Problem problem{toml.text("number"), toml.text("name"), static_cast<int>(toml.number("points")),
                  toml.texts("suites")};
  problem.extension = toml.flag("extension");
  problem.in_extensions = problem.extension && !toml.flag("in_task");
  return problem;
}

Task read_task(const TomlTable& toml) {
  toml.allow_only({"number", "name", "sentinel", "problem"});
  Task task{static_cast<int>(toml.number("number")),
            toml.text("name"),
            toml.has("sentinel") ? toml.text("sentinel") : "",
            {}};
  for (const TomlTable& problem : toml.tables("problem"))
    task.problems.push_back(read_problem(problem));
  return task;
}

}  // namespace

const std::vector<Task>& course() {
  static const std::vector<Task> tasks = [] {
    std::vector<Task> read;
    for (const TomlTable& task : parse_toml(kCourseText, "course.toml").tables("task"))
      read.push_back(read_task(task));
    return read;
  }();
  return tasks;
}

}  // namespace fsdp
