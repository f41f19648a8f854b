#include <check/score.h>
#include <check/test_run.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

namespace fsdp {
namespace {

using namespace std::chrono_literals;

// A program that answers as a GoogleTest program of the tests S.a, S.b and S.c: `script` runs for
// each test that its filter names, with the test in $1.
std::string program_that(const std::string& script) {
  const std::string path = testing::TempDir() + "check_" + std::to_string(getpid()) + "_" +
                           testing::UnitTest::GetInstance()->current_test_info()->name();
  std::ofstream(path) << "#!/bin/bash\n"
                         "run() {\n" +
                             script +
                             "\n}\n"
                             "if [[ $1 == --gtest_list_tests ]]; then\n"
                             "  printf 'S.\\n  a\\n  b\\n  c  # GetParam() = 3\\n'; exit\n"
                             "fi\n"
                             "IFS=: read -ra tests <<<\"${1#--gtest_filter=}\"\n"
                             "for test in \"${tests[@]}\"; do\n"
                             "  echo \"[ RUN      ] $test\"; run \"$test\"\n"
                             "  echo \"[       OK ] $test (1 ms)\"\n"
                             "done\n";
  chmod(path.c_str(), 0700);
  return path;
}

std::vector<TestResult> run(const std::string& script, std::chrono::seconds time_limit = 60s) {
  TestRunOptions options;
  options.time_limit = time_limit;
  const std::string program = program_that(script);
  auto results = run_tests(program, options);
  std::remove(program.c_str());
  return results;
}

// "a passed, b failed, c not started"
std::string outcomes(const std::vector<TestResult>& results) {
  std::string text;
  for (const TestResult& result : results) {
    const char* outcome = result.outcome == Outcome::passed   ? " passed"
                          : result.outcome == Outcome::failed ? " failed"
                                                              : " not started";
    text += (text.empty() ? "" : ", ") + result.name + outcome;
  }
  return text;
}

TEST(TestRun, GivesAResultForEachTest) {
  EXPECT_EQ(outcomes(run("true")), "a passed, b passed, c passed");
}

TEST(TestRun, KeepsWhatAFailedTestPrinted) {
  const auto results =
      run("[[ $1 != S.b ]] || { echo 'is 3, expected 4'; echo \"[  FAILED  ] $1 (1 ms)\"; }");
  EXPECT_EQ(outcomes(results), "a passed, b failed, c passed");
  EXPECT_EQ(results[1].text, "is 3, expected 4\n");
}

TEST(TestRun, TellsWhatIsNotStartedFromWhatFailed) {
  const auto results = run(
      "[[ $1 != S.a ]] || { echo 'not started: unshard (problem 2.3)'; echo \"[  SKIPPED ] $1\"; }");
  EXPECT_EQ(outcomes(results), "a not started, b passed, c passed");
  EXPECT_EQ(results[0].text, "unshard (problem 2.3)");
}

TEST(TestRun, GoesOnAfterATestThatEndsTheProgram) {
  for (const auto& [how, said] :
       {std::pair("kill -SEGV $$", "was killed: Segmentation fault"),
        std::pair("exit 0", "left by exit(0)"), std::pair("exit 7", "left by exit(7)")}) {
    const auto results = run(std::string("[[ $1 != S.b ]] || ") + how);
    EXPECT_EQ(outcomes(results), "a passed, b failed, c passed");
    EXPECT_NE(results[1].text.find(said), std::string::npos) << results[1].text;
  }
}

TEST(TestRun, EndsATestThatDoesNotEnd) {
  const auto results = run("[[ $1 != S.b ]] || read < <(sleep 1000)", 2s);
  EXPECT_EQ(outcomes(results), "a passed, b failed, c passed");
  EXPECT_NE(results[1].text.find("did not end within 2 s"), std::string::npos) << results[1].text;
}

TEST(TestRun, IsNotFooledByAResultThatATestPrintsOfAnother) {
  const auto results = run("[[ $1 != S.a ]] || { echo '[       OK ] S.c (0 ms)'; exit 0; }");
  EXPECT_EQ(outcomes(results), "a failed, b passed, c passed");
}

TEST(TestRun, RefusesAProgramThatIsNotThere) {
  EXPECT_THROW(run_tests("/nowhere/tests", {}), std::runtime_error);
}

TEST(Score, GivesEachTestTheSamePartOfItsProblemsPoints) {
  const Problem problem{"2.3", "unshard", 6, {"T2_3_unshard"}};
  const std::vector<TestResult> results{{"T2_3_unshard", "a", Outcome::passed, ""},
                                        {"T2_3_unshard", "b", Outcome::failed, ""},
                                        {"T2_3_unshard", "c", Outcome::not_started, ""},
                                        {"T2_4_reshard", "d", Outcome::passed, ""}};
  const Tally sum = tally(problem, results);
  EXPECT_EQ(sum.points, 2);
  EXPECT_EQ(sum.tests(), 3);
  EXPECT_FALSE(sum.complete());
}

TEST(Course, AddsUpTo120Points) {
  int points = 0;
  for (const Task& task : course())
    points += task.points();
  EXPECT_EQ(points, 120);
}

}  // namespace
}  // namespace fsdp
