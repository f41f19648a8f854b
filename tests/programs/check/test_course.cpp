#include <check/course.h>
#include <gtest/gtest.h>

namespace fsdp {
namespace {

TEST(Course, has_seven_tasks_with_120_points) {
  ASSERT_EQ(course().size(), 7u);
  int number = 0, points = 0;
  for (const Task& task : course()) {
    EXPECT_EQ(task.number, ++number);
    EXPECT_TRUE(task.sentinel.starts_with("T" + std::to_string(number) + "_")) << task.sentinel;
    points += task.points();
  }
  EXPECT_EQ(points, 120);
}

TEST(Course, every_problem_has_its_number_name_points_and_suites) {
  for (const Task& task : course()) {
    int place = 0;
    for (const Problem& problem : task.problems) {
      EXPECT_EQ(problem.number, std::to_string(task.number) + "." + std::to_string(++place));
      EXPECT_NE(problem.name, "") << problem.number;
      EXPECT_GT(problem.points, 0) << problem.number;
      EXPECT_FALSE(problem.suites.empty()) << problem.number;
      for (const std::string& suite : problem.suites)
        EXPECT_TRUE(suite.starts_with("T" + std::to_string(task.number) + "_")) << suite;
    }
  }
}

TEST(Course, an_extension_without_functions_of_its_own_is_written_in_the_task) {
  const auto& problems = course().at(6).problems;
  EXPECT_FALSE(problems.at(0).extension);
  EXPECT_TRUE(problems.at(5).extension && problems.at(5).in_extensions);   // 7.6
  EXPECT_TRUE(problems.at(6).extension && !problems.at(6).in_extensions);  // 7.7
  EXPECT_EQ(problems.at(7).suites,
            (std::vector<std::string>{"T7_8_ignored", "T7_8_ignored_ranks"}));
}

}  // namespace
}  // namespace fsdp
