#include <check/check_course.h>
#include <check/score.h>
#include <check/task_result.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fsdp {
namespace {

TEST(Score, gives_each_test_an_equal_part_of_the_points_of_its_problem) {
  const Problem problem{"2.3", "unshard", 6, {"T2_3_unshard"}};
  const std::vector<TestResult> results{{"T2_3_unshard", "a", Outcome::passed},
                                        {"T2_3_unshard", "b", Outcome::failed},
                                        {"T2_3_unshard", "c", Outcome::not_started},
                                        {"T2_4_reshard", "d", Outcome::passed}};
  const Tally sum = tally(problem, results);
  EXPECT_EQ(sum.points, 2);
  EXPECT_EQ(sum.tests(), 3);
  EXPECT_FALSE(sum.complete());
}

TEST(Score, counts_a_skipped_test_as_failed) {
  const Problem problem{"2.3", "unshard", 6, {"T2_3_unshard"}};
  EXPECT_EQ(tally(problem, {{"T2_3_unshard", "a", Outcome::skipped}}).failed, 1);
}

TEST(Score, is_held_back_by_a_sentinel_that_fails_on_any_number_of_ranks) {
  const Task task{2, "flat_parameter", "T2_2_shard.only_the_shard", {}};
  const TestResult passed{"T2_2_shard", "only_the_shard/W1", Outcome::passed};
  TestResult other{"T2_2_shard", "only_the_shard/W2", Outcome::passed};
  EXPECT_FALSE(sentinel_fails(task, {}));
  EXPECT_FALSE(sentinel_fails(task, {passed, other}));
  for (const Outcome outcome : {Outcome::failed, Outcome::not_started, Outcome::skipped}) {
    other.outcome = outcome;
    EXPECT_TRUE(sentinel_fails(task, {passed, other}));
  }
}

TEST(Score, shows_a_failure_of_the_first_problem_on_more_than_one_rank) {
  std::vector<TestResult> results{{"T2_4_reshard", "a/W2", Outcome::failed},
                                  {"T2_1_layout", "b/W1", Outcome::passed},
                                  {"T2_3_unshard", "c/W1", Outcome::failed},
                                  {"T2_3_unshard", "c/W2", Outcome::failed},
                                  {"T2_3_unshard", "c/W3", Outcome::failed}};
  sort_by_problem(results);
  EXPECT_EQ(telling_failure(results)->name, "c/W2");
  results.resize(2);  // b/W1 and c/W1
  EXPECT_EQ(telling_failure(results)->name, "c/W1");
  results.resize(1);
  EXPECT_EQ(telling_failure(results), nullptr);
}

TEST(Course, adds_up_to_120_points) {
  int points = 0;
  for (const Task& task : course())
    points += task.points();
  EXPECT_EQ(points, 120);
}

// What `check` prints of tasks that are not built, and its status.
std::pair<std::string, int> check_without_tests(const std::string& what,
                                                const std::vector<int>& blank,
                                                const std::vector<int>& broken) {
  Settings settings;
  settings.what = what;
  settings.stacks.assign(course().size(), "mine_on_reference");
  settings.blank = blank;
  settings.broken = broken;
  testing::internal::CaptureStdout();
  const int status = check_course(settings);
  return {testing::internal::GetCapturedStdout(), status};
}

TEST(Check, shows_a_blank_task_as_not_started_without_running_a_program) {
  const auto [text, status] = check_without_tests("2", {2}, {});
  EXPECT_EQ(status, 1);
  EXPECT_EQ(text,
            "2.1 layout               ................   0.0 of   4   not started\n"
            "2.2 shard                ................   0.0 of   4   not started\n"
            "2.3 unshard              ................   0.0 of   4   not started\n"
            "2.4 reshard              ................   0.0 of   4   not started\n"
            "2.5 flat_gradient        ................   0.0 of   4   not started\n"
            "task 2 flat_parameter    ................   0.0 of  20   not started\n"
            "\n"
            "Nothing of this is written yet, so this is how it should look.\n"
            "Next: problem 2.1 layout, in tasks/task2_*/; then ./fsdp check 2.1\n");
}

TEST(Check, is_not_complete_with_a_task_that_does_not_compile) {
  const auto [text, status] = check_without_tests("", {1, 3, 4, 5, 6, 7}, {2});
  EXPECT_EQ(status, 1);
  EXPECT_NE(text.find("0.0 of  20   does not compile\n"), std::string::npos) << text;
  EXPECT_NE(text.find("all                      ................   0.0 of 120   not started\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("Next: problem 1.1 "), std::string::npos) << text;
}

TEST(Check, tells_the_grader_the_score_of_each_problem) {
  const Task& task = course()[1];
  TaskResult result;
  result.task = &task;
  result.tests = {{"T2_1_layout", "a/W1", Outcome::passed},
                  {"T2_1_layout", "b/W1", Outcome::failed, "is 3"},
                  {"T2_2_shard", "c/W1", Outcome::not_started, "shard (problem 2.2)"}};
  for (const Problem& problem : task.problems) {
    result.problems.emplace_back(&problem, tally(problem, result.tests));
    result.sum += result.problems.back().second;
  }
  const auto json = nlohmann::json::parse(to_json({result}, result.sum));
  EXPECT_EQ(json["points"], 2);
  EXPECT_EQ(json["sentinel_fails"], nlohmann::json::array());
  EXPECT_EQ(json["problems"][0]["share"], 0.5);
  EXPECT_EQ(json["problems"][0]["explanation"], "T2_1_layout.b/W1\nis 3");
  EXPECT_EQ(json["problems"][1]["explanation"], "not started: shard (problem 2.2)");
  EXPECT_EQ(json["problems"][1]["not_started"], 1);
  EXPECT_EQ(json["tests"][1]["test"], "T2_1_layout.b");
  EXPECT_EQ(json["tests"][1]["ranks"], "W1");
  EXPECT_EQ(json["tests"][2]["outcome"], "not started");
}

}  // namespace
}  // namespace fsdp
