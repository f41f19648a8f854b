#include <base/plain_error.h>
#include <base/whole_file.h>
#include <check/settings.h>

#include <command_line/command_line.h>
#include <command_line/usage.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace fsdp {
namespace {

bool contains(const std::vector<int>& numbers, int number) {
  return std::ranges::count(numbers, number) > 0;
}

void add_options(CLI::App& app, Settings& settings) {
  app.add_option("what", settings.what, "a task (3) or a problem (3.2); if left out, everything");
  // The script scripts/verbs/check.sh replaces --base and --solutions by --stacks. This program
  // declares them only so that --help lists them.
  static std::string base;
  static bool solutions{};
  add_choice(app, "--base", base, {"reference", "mine"},
             "the code under a task: reference, the solutions of all tasks before it; or mine, "
             "your own tasks. Without it: the solutions that are here, and then your own");
  app.add_flag("--solutions", solutions, "test the reference solutions instead of tasks/");
  add_number(app, "--repeat", settings.repeat, NumberRange<int64_t>{1, 1000},
             "run every test this many times (default 1)");
  add_numbers(app, "--world", settings.worlds, {1, 8},
              "only these numbers of ranks, as in 2,4; tests run on 1, 2, 3 and 4 ranks, some "
              "on 8")
      // Without this call, the parser would read the 3.2 of "--world 2,4 3.2", a problem, as one
      // more value of --world.
      ->allow_extra_args(false);
  app.add_option("--test", settings.test,
                 "only the test of this name, as in ./fsdp check 3.2 --test NAME or NAME/W2");
  app.add_option("--trace", settings.trace,
                 "write the timeline of the first test that fails, or of the last test if none "
                 "fails, to FILE.txt, .json or .html; with --test, of that test");
  app.add_option("--output", settings.output,
                 "write everything that the tests print to FILE, also of tests that pass");
  app.add_option("--record", settings.record,
                 "record the ranks of tests that fail in a new folder, for ./fsdp replay");
  app.add_option("--json", settings.json, "write the points and every test's result to FILE");
  app.add_option(
      "--page", settings.page,
      "write a map of the tasks to FILE, as HTML: what is done, what is next, what can begin");
}

// Adds the options that only callers of this program set: the script of ./fsdp check describes the
// state of the student's tasks/ with them, and the grader sets its limits.
void add_options_of_callers(CLI::App& app, Settings& settings) {
  const std::string group =
      "Options that ./fsdp check sets itself, for other callers of this program";
  app.add_option("--stacks", settings.stacks,
                 "for each task, the stack whose code its tests run, as in mine,mine_on_1 or "
                 "reference (cmake/stacks.cmake); the last stack is also used for all later tasks")
      ->delimiter(',')
      ->required()
      ->group(group);
  const auto add_tasks = [&](const char* option, std::vector<int>& tasks, const char* text) {
    app.add_option(option, tasks, text)->delimiter(',')->group(group);
  };
  add_tasks("--blank", settings.blank,
            "tasks in which nothing is written, as in 4,5: their tests do not run");
  add_tasks("--broken", settings.broken, "tasks that do not compile: they have no points");
  add_tasks("--rejected", settings.rejected,
            "tasks that scripts/look.sh rejects: they have no points");
  app.add_flag("--stop-hanging", settings.stop_hanging,
               "after a test that hangs, run no other test of its problem")
      ->group(group);
  app.add_option("--seconds", settings.seconds,
                 "time limit of all tests of a task together (default 86400)")
      ->group(group);
}

// Makes the path of --trace absolute, removes an older file there, because the test programs do not
// overwrite it, and passes the path to the test programs in the environment variable FSDP_TRACE.
// Throws std::invalid_argument if the path does not end in .txt, .json or .html.
void prepare_trace(std::string& trace) {
  const std::string ending = std::filesystem::path(trace).extension();
  if (ending != ".txt" && ending != ".json" && ending != ".html") {
    throw std::invalid_argument("--trace " + trace +
                                ": the name of a timeline ends in .txt, .json or .html");
  }
  trace = std::filesystem::absolute(trace);
  std::filesystem::remove(trace);
  setenv("FSDP_TRACE", trace.c_str(), 1);
}

// Makes the path of --record absolute, creates the folder, and passes the path to the test programs
// in the environment variable FSDP_RECORD. Throws std::invalid_argument if the path exists.
void prepare_record(std::string& record) {
  record = std::filesystem::absolute(record);
  if (std::filesystem::exists(record))
    throw std::invalid_argument("--record " + record + ": is there already; name a new folder");
  check_output("--record", record, reason_not_to_fill(record));
  std::filesystem::create_directories(record);
  setenv("FSDP_RECORD", record.c_str(), 1);
}

// Makes the path of --output absolute and removes an older file there, because the output of the
// tests is appended to the file. Throws std::invalid_argument if the path is a folder or is not in
// a folder that exists.
void prepare_output(std::string& output) {
  output = std::filesystem::absolute(output);
  if (std::filesystem::is_directory(output) ||
      !std::filesystem::is_directory(std::filesystem::path(output).parent_path()))
    throw std::invalid_argument("--output " + output + ": name a file in a folder that exists");
  std::filesystem::remove(output);
}

[[noreturn]] void refuse(const std::string& why) {
  std::fprintf(stderr, "fsdp check: %s\n", why.c_str());
  std::exit(2);
}

bool wants_anything(const Settings& settings) {
  for (const Task& task : course()) {
    for (const Problem& problem : task.problems) {
      if (settings.wants(task) && settings.wants(problem)) return true;
    }
  }
  return false;
}

}  // namespace

const std::string& Settings::stack(const Task& task) const {
  return stacks.at(static_cast<size_t>(task.number));
}

std::string Settings::program(const Task& task) const {
  return bin + "/" + stack(task) + "_task" + std::to_string(task.number) + "_tests";
}

std::string Settings::unusable(const Task& task) const {
  if (contains(broken, task.number)) return "does not compile";
  return contains(rejected, task.number) ? "rejected" : "";
}

bool Settings::runs(const Task& task) const {
  return unusable(task).empty() && !contains(blank, task.number);
}

bool Settings::wants(const Task& task) const {
  return what.empty() || what.substr(0, 1) == std::to_string(task.number);
}

bool Settings::wants(const Problem& problem) const {
  return wants_whole_tasks() || what == problem.number;
}

int Settings::solutions_under(const Task& task) const {
  if (stack(task) == "mine") return 0;
  const std::string prefix = "mine_on_";
  return stack(task).starts_with(prefix) ? std::stoi(stack(task).substr(prefix.size())) : -1;
}

std::string Settings::filter(const Task& task) const {
  // The part of the filter after "SUITE.": the name in --test without its suite, or all names.
  const std::string name = test.empty() ? "*" : test.substr(test.find('.') + 1);
  std::string filter;
  for (const Problem& problem : task.problems) {
    if (!wants(problem)) continue;
    for (const std::string& suite : problem.suites) {
      filter += (filter.empty() ? "" : ":") + suite + '.' + name;
      // The name of a test that runs on several numbers of ranks ends in /W1, /W2, ... This pattern
      // selects all of them.
      if (!test.empty()) filter += ':' + suite + '.' + name + "/W*";
    }
  }
  const char* separator = "-";  // GoogleTest leaves out the tests after a "-" in its filter
  for (int world = 1; world <= 8 && !worlds.empty(); ++world) {
    if (contains(worlds, world)) continue;
    filter += separator + ("*/W" + std::to_string(world));
    separator = ":";
  }
  return filter;
}

Settings parse_settings(int argc, char** argv) {
  Settings settings;
  settings.bin = std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
  CLI::App app("Runs the tests of the tasks and prints the points.", "fsdp check");
  add_options(app, settings);
  add_options_of_callers(app, settings);
  const auto check = [&] {
    settings.stacks.resize(course().size(), settings.stacks.back());
    if (!settings.test.empty() && settings.wants_whole_tasks()) {
      throw std::invalid_argument("--test needs the problem too, as in ./fsdp check 3.2 --test " +
                                  settings.test);
    }
    if (!settings.page.empty() && (!settings.what.empty() || !settings.worlds.empty())) {
      throw std::invalid_argument("--page shows everything: leave out the task, and --world");
    }
    for (const auto& [option, path] : {std::pair("--json", settings.json),
                                       {"--page", settings.page},
                                       {"--trace", settings.trace}})
      if (!path.empty()) check_output(option, path, reason_not_to_write(path));
    if (!settings.trace.empty()) prepare_trace(settings.trace);
    if (!settings.output.empty()) prepare_output(settings.output);
    if (!settings.record.empty()) prepare_record(settings.record);
  };
  try {
    parse_command_line(app, {argv + 1, argv + argc}, check);
  } catch (const std::exception& error) {
    refuse(plain_text(error));
  }
  if (!wants_anything(settings)) {
    refuse("there is no task or problem " + settings.what + "; tasks are 0 to " +
           std::to_string(course().back().number));
  }
  return settings;
}

}  // namespace fsdp
