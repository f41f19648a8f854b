// run_tests PROGRAM [OPTION...]: runs a test program and prints a line for each suite, then the
// output of every test that failed. Exits with status 1 if a test failed, if the program has no
// tests, or if its end (exit status or signal) contradicts the results of its tests.
#include <base/plain_error.h>
#include <check/test_run.h>

#include <command_line/command_line.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace fsdp {
namespace {

struct Counts {
  int passed{}, failed{}, skipped{};
  int64_t milliseconds{};

  void add(const TestResult& result) {
    passed += result.outcome == Outcome::passed;
    failed += result.outcome == Outcome::failed || result.outcome == Outcome::not_started;
    skipped += result.outcome == Outcome::skipped;
    milliseconds += result.milliseconds;
  }
};

void print_indented(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    std::printf("    %s\n", line.c_str());
}

// Prints a line for each suite, in the order of the suites' first results.
void print_suites(const std::vector<TestResult>& results) {
  using Suite = std::pair<std::string, Counts>;
  std::vector<Suite> suites;
  for (const TestResult& result : results) {
    auto suite = std::ranges::find(suites, result.suite, &Suite::first);
    if (suite == suites.end()) suite = suites.insert(suites.end(), {result.suite, {}});
    suite->second.add(result);
  }
  for (const auto& [name, counts] : suites) {
    std::printf("%-36s %3d passed, %d failed, %d skipped  %6.1f s\n", name.c_str(), counts.passed,
                counts.failed, counts.skipped, static_cast<double>(counts.milliseconds) / 1000);
  }
}

void print_failures(const std::vector<TestResult>& results) {
  for (const TestResult& result : results) {
    if (result.outcome == Outcome::passed || result.outcome == Outcome::skipped) continue;
    std::printf("  FAILED %s.%s\n", result.suite.c_str(), result.name.c_str());
    print_indented(result.text);
  }
}

// Returns the error if the program has no tests, or if its end contradicts its results; else "".
std::string wrong_program(const TestRun& run) {
  if (run.results.empty()) return "it has no tests";
  return run.wrong_end.empty() ? "" : "after its last test it " + run.wrong_end;
}

// Adds a line with three numbers, passed, failed and skipped tests, to the file `totals`. Does
// nothing if `totals` is "".
void add_totals(const std::string& totals, const Counts& all) {
  if (totals.empty()) return;
  std::ofstream(totals, std::ios::app)
      << all.passed << ' ' << all.failed << ' ' << all.skipped << '\n';
}

int run(const std::string& program, const TestRunOptions& options, const std::string& totals) {
  Counts all;
  std::string wrong;
  try {
    const TestRun run = run_tests(program, options);
    for (const TestResult& result : run.results)
      all.add(result);
    print_suites(run.results);
    print_failures(run.results);
    wrong = wrong_program(run);
  } catch (const std::runtime_error& error) {
    wrong = plain_text(error);
  }
  if (!wrong.empty()) {
    ++all.failed;
    std::printf("  FAILED %s:\n", std::filesystem::path(program).filename().c_str());
    print_indented(wrong);
  }
  add_totals(totals, all);
  return all.failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  CLI::App app("Runs a test program and prints a line for each suite.", "run_tests");
  std::string program, totals;
  int seconds = 900;
  fsdp::TestRunOptions options;
  app.add_option("program", program)->required();
  fsdp::add_number(app, "--seconds", seconds, fsdp::NumberRange<int64_t>{1, 1'000'000},
                   "time limit for all tests together (default 900)");
  app.add_option("--totals", totals,
                 "add the line 'PASSED FAILED SKIPPED', three numbers, to this file");
  try {
    fsdp::parse_command_line(app, {argv + 1, argv + argc});
  } catch (const fsdp::UsageError& error) {
    std::fprintf(stderr, "run_tests: %s\n", fsdp::plain_text(error).c_str());
    return 2;
  }
  const std::filesystem::path path(program);
  if (!std::filesystem::exists(path)) {
    std::printf("%s is not built; this builds it: cmake --build %s --target %s\n", program.c_str(),
                path.parent_path().parent_path().c_str(), path.filename().c_str());
    return 1;
  }
  options.time_limit = options.whole_limit = std::chrono::seconds(seconds);
  return fsdp::run(program, options, totals);
}
