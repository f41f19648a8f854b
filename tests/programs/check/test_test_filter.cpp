#include <check/course.h>
#include <check/settings.h>
#include <gtest/gtest.h>

namespace fsdp {
namespace {

TEST(TestFilter, the_filter_of_check_selects_tests_by_problem_ranks_and_name) {
  Settings settings;
  settings.what = "7.2";
  settings.worlds = {1, 2, 3, 4, 5, 6, 8};
  const Task& task = course()[7];
  EXPECT_EQ(settings.filter(task), "T7_2_tied_weights.*:T7_2_tied_weights_ranks.*-*/W7");
  settings.worlds = {};
  for (const char* test : {"a", "T7_2_tied_weights_ranks.a"}) {
    settings.test = test;
    EXPECT_EQ(settings.filter(task),
              "T7_2_tied_weights.a:T7_2_tied_weights.a/W*:"
              "T7_2_tied_weights_ranks.a:T7_2_tied_weights_ranks.a/W*");
  }
}

}  // namespace
}  // namespace fsdp
