#include <check/test_run.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <common/expect_text.h>

#include <cstdio>
#include <fstream>

namespace fsdp {
namespace {

using namespace std::chrono_literals;

// Writes a test program with the tests S.a, S.b and S.c, and returns its path. For each test that
// the filter selects, `script` runs with the test in $1; it can set `outcome`, `text` and
// `timed_out`.
std::string program_that(const std::string& script) {
  const std::string path = testing::TempDir() + "check_" + std::to_string(getpid()) + "_" +
                           testing::UnitTest::GetInstance()->current_test_info()->name();
  std::ofstream(path) << R"sh(#!/bin/bash
for argument; do
  case $argument in
    --results_to=*) results=${argument#*=} ;;
    --gtest_filter=*) filter=${argument#*=} ;;
  esac
done
if [[ $filter == '*' ]]; then filter=S.a:S.b:S.c; fi
record() { echo "$1" >&"$results"; }
run() {
)sh" << script << R"sh(
}
record '{"event":"plan","tests":["'"${filter//:/\",\"}"'"]}'
IFS=: read -ra tests <<<"$filter"
for test in "${tests[@]}"; do
  name='"suite":"S","name":"'"${test#S.}"'"'
  outcome=passed text= timed_out=false
  record '{"event":"start",'"$name"'}'
  run "$test"
  record '{"event":"end",'"$name"',"outcome":"'"$outcome"'","text":"'"$text"'","milliseconds":3,"timed_out":'"$timed_out"',"printed":'"$(stat -L -c %s /proc/$$/fd/1)"'}'
  if [[ $outcome == failed ]]; then status=1; fi
done
exit ${status-0}
)sh";
  chmod(path.c_str(), 0700);
  return path;
}

TestRun run(const std::string& script, std::chrono::seconds time_limit = 60s,
            TestRunOptions options = {}) {
  options.time_limit = time_limit;
  const std::string program = program_that(script);
  TestRun run = run_tests(program, options);
  std::remove(program.c_str());
  return run;
}

// Returns the name and outcome of each test, such as "S.a passed, S.b failed".
std::string outcomes(const TestRun& run) {
  std::string text;
  for (const TestResult& result : run.results)
    text += (text.empty() ? "" : ", ") + result.name + ' ' + to_string(result.outcome);
  return text;
}

TEST(TestRun, each_test_has_a_result_with_what_it_printed_and_what_failed) {
  const TestRun all =
      run("case $1 in S.a) outcome='not started' text='unshard (problem 2.3)' ;;"
          " S.b) echo 'x is 3'; outcome=failed text='is 3, expected 4' ;;"
          " S.c) outcome=skipped text='needs a GPU' ;; esac");
  EXPECT_EQ(outcomes(all), "a not started, b failed, c skipped");
  EXPECT_EQ(all.results[0].text, "unshard (problem 2.3)");
  EXPECT_EQ(all.results[1].text, "x is 3\nis 3, expected 4");
  EXPECT_EQ(all.results[2].milliseconds, 3);
  EXPECT_EQ(all.wrong_end, "");
}

TEST(TestRun, the_run_of_tests_continues_after_a_test_that_ends_its_program) {
  for (const auto& [how, said] :
       {std::pair("kill -SEGV $$", "was killed: Segmentation fault"),
        std::pair("exit 0", "left by exit(0)"), std::pair("exit 7", "left by exit(7)")}) {
    const TestRun all = run(std::string("[[ $1 != S.b ]] || ") + how);
    EXPECT_EQ(outcomes(all), "a passed, b failed, c passed");
    EXPECT_CONTAINS(all.results[1].text, said);
  }
}

TEST(TestRun, check_ends_a_test_that_exceeds_its_time_limit) {
  const TestRun all = run("[[ $1 != S.b ]] || read < <(sleep 1000)", 2s);
  EXPECT_EQ(outcomes(all), "a passed, b failed, c passed");
  EXPECT_CONTAINS(all.results[1].text, "did not end within 2 s");
}

TEST(TestRun, after_a_test_that_hangs_no_other_test_of_its_problem_runs) {
  TestRunOptions options;
  options.problem_of = [](const std::string& suite) { return "problem of " + suite; };
  const std::string in_a_rank =
      "[[ $1 != S.a ]] || { outcome=failed; timed_out=true text='rank 0 was still running'; }";
  const TestRun all = run(in_a_rank, 60s, options);
  EXPECT_EQ(outcomes(all), "a failed, b failed, c failed");
  EXPECT_FALSE(all.results[0].not_run);
  EXPECT_TRUE(all.results[1].not_run && all.results[2].not_run);
  EXPECT_EQ(all.results[1].text, "not run: S.a did not end\n");
  EXPECT_EQ(all.wrong_end, "");

  const TestRun by_check = run("[[ $1 != S.a ]] || read < <(sleep 1000)", 2s, options);
  EXPECT_EQ(outcomes(by_check), "a failed, b failed, c failed");
  EXPECT_TRUE(by_check.results[2].not_run);

  // A test that expects a time-out passes, although it reports a time-out. So the tests after it
  // still run.
  const std::string passes = "timed_out=true";
  EXPECT_EQ(outcomes(run(passes, 60s, options)), "a passed, b passed, c passed");
  EXPECT_EQ(outcomes(run(in_a_rank, 60s)), "a failed, b passed, c passed");
}

TEST(TestRun, the_run_of_tests_continues_with_another_problem_after_a_test_that_hangs) {
  TestRunOptions options;
  int asked = 0;  // so that each test belongs to a problem of its own
  options.problem_of = [&](const std::string&) { return std::to_string(asked++); };
  const TestRun all = run("[[ $1 != S.a ]] || { outcome=failed; timed_out=true; }", 60s, options);
  EXPECT_EQ(outcomes(all), "a failed, b passed, c passed");
}

TEST(TestRun, long_output_of_a_test_is_shortened_to_whole_lines_of_its_beginning_and_end) {
  const TestRun all =
      run("[[ $1 != S.b ]] || { for ((i = 1; i <= 20000; ++i)); do echo \"line $i\"; done;"
          " printf 'no newline'; outcome=failed text='is 3'; }");
  const std::string& text = all.results[1].text;
  EXPECT_TRUE(text.starts_with("line 1\nline 2\n"));
  EXPECT_CONTAINS(text, "line 30\n... 19941 lines left out; ./fsdp check --output FILE ");
  EXPECT_CONTAINS(text, "\nline 19972\n");
  EXPECT_TRUE(text.ends_with("line 20000\nno newline\nis 3")) << text.substr(text.size() - 40);
  EXPECT_LACKS(text, "line 31\n");
}

TEST(TestRun, a_long_line_that_a_test_prints_is_cut_at_its_end) {
  const TestRun all = run("[[ $1 != S.b ]] || { printf '%0700d' 0; outcome=failed text='is 3'; }");
  EXPECT_TRUE(all.results[1].text.starts_with(std::string(500, '0')));
  EXPECT_EQ(all.results[1].text.substr(500), "... (200 more bytes)\nis 3");
}

TEST(TestRun, the_output_file_of_check_gets_what_all_tests_printed) {
  TestRunOptions options;
  options.output = testing::TempDir() + "printed_" + std::to_string(getpid());
  run("case $1 in S.a) seq 1 100 ;; S.b) printf b; kill -SEGV $$ ;; esac", 60s, options);
  std::ifstream file(options.output);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::string expected = "== S.a\n";
  for (int i = 1; i <= 100; ++i)
    expected += std::to_string(i) + '\n';
  EXPECT_EQ(text, expected + "== S.b\nb\n");
  std::remove(options.output.c_str());
}

// A failing test prints all that a passing test could print: the lines of GoogleTest, as output and
// as the text of its failure, and a record of its result.
TEST(TestRun, text_that_a_test_prints_is_never_taken_for_its_result) {
  const std::string passes =
      R"(printf '\n[ RUN      ] %s\n[       OK ] %s\n[       OK ] %s (0 ms)\n[  PASSED  ] 1 test.\n')"
      R"( $1 $1 $1; printf '{"event":"end","suite":"S","name":"%s","outcome":"passed",)"
      R"("text":"","milliseconds":0}\n' ${1#S.};)";
  const std::string prints = "[[ $1 == S.c ]] || { " + passes;
  EXPECT_EQ(outcomes(run(prints + "outcome=failed; }")), "a failed, b failed, c passed");
  EXPECT_EQ(outcomes(run(prints + "exit 0; }")), "a failed, b failed, c passed");
  EXPECT_EQ(outcomes(run(R"([[ $1 == S.c ]] || { outcome=failed text='\n[       OK ] '$1'\n'; })")),
            "a failed, b failed, c passed");
  EXPECT_EQ(outcomes(run("[[ $1 == S.c ]] || { echo 'not started: x'; outcome=failed; }")),
            "a failed, b failed, c passed");
}

TEST(TestRun, check_ends_a_test_that_prints_endlessly) {
  const TestRun all = run("[[ $1 != S.b ]] || yes");
  EXPECT_EQ(outcomes(all), "a passed, b failed, c passed");
  EXPECT_CONTAINS(all.results[1].text, "y\ny\n");
  EXPECT_CONTAINS(all.results[1].text, "printed more than 256 MiB");
  EXPECT_LE(all.results[1].text.size(), size_t{65} << 10);
}

TEST(TestRun, check_reports_that_a_program_ended_wrongly_although_its_tests_passed) {
  EXPECT_EQ(run("[[ $1 != S.c ]] || trap 'echo leaks; exit 3' EXIT").wrong_end,
            "left by exit(3) and printed:\nleaks\n");
}

TEST(TestRun, running_a_missing_test_program_or_one_that_writes_no_results_throws) {
  EXPECT_THROW(run_tests("/nowhere/tests", {}), std::runtime_error);
  EXPECT_THROW(run_tests("/bin/true", {}), std::runtime_error);
}

TEST(TestRun, the_name_of_a_test_result_omits_the_suffix_for_its_number_of_ranks) {
  const TestResult on_ranks{"T2_3_unshard", "gathers_once/W3", Outcome::passed};
  EXPECT_EQ(on_ranks.test(), "T2_3_unshard.gathers_once");
  EXPECT_EQ(on_ranks.ranks(), "W3");
  const TestResult alone{"T7_3_policy", "wraps_nothing", Outcome::passed};
  EXPECT_EQ(alone.test(), "T7_3_policy.wraps_nothing");
  EXPECT_EQ(alone.ranks(), "");
}

}  // namespace
}  // namespace fsdp
