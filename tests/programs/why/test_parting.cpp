#include <gtest/gtest.h>
#include <why/parting.h>

namespace fsdp {
namespace {

using Kind = Step::Kind;

SourceLine line_of(const std::string& function, int line) {
  return {function, "/tasks/task4/hooks.cpp", line};
}

// A step of the function, which has reached `line`.
Step runs(const std::string& function, int line) {
  return {Kind::function, function, 0, {line_of(function, line)}};
}
Step leaves(const std::string& function, int line) {
  Step step = runs(function, line);
  step.leaves = true;
  return step;
}
Step does(Kind kind, const std::string& name, const std::string& function, int line,
          uint64_t arguments = 0) {
  return {kind, name, arguments, {line_of(function, line)}};
}

// Two programs with the same functions.
StepsOfRank steps(std::vector<Step> steps) {
  return {std::move(steps), {"collect", "reduce", "finish"}};
}
// A program with other functions, so that only collectives and numbers that were read are compared.
StepsOfRank other_steps(std::vector<Step> steps) {
  return {std::move(steps), {"collect", "own_1", "own_2"}};
}

TEST(Parting, equal_steps_do_not_part) {
  const auto run = steps({runs("collect", 3), does(Kind::call, "add_", "collect", 4)});
  EXPECT_FALSE(find_parting(run, run));
}

TEST(Parting, an_operator_with_other_values_is_named_with_the_line_that_calls_it) {
  const auto yours = steps({runs("reduce", 3), does(Kind::call, "narrow", "reduce", 4, 1)});
  const auto right = steps({runs("reduce", 8), does(Kind::call, "narrow", "reduce", 9, 2)});
  const auto found = find_parting(yours, right);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->line.line, 4);
  EXPECT_EQ(found->yours, "called torch's narrow");
  EXPECT_EQ(found->reference, "did so with other values");
}

TEST(Parting, the_last_line_before_the_difference_is_named_if_a_step_is_missing) {
  const auto yours = steps({runs("collect", 3), runs("reduce", 5), runs("reduce", 6),
                            leaves("reduce", 7), runs("finish", 9)});
  const auto right =
      steps({runs("collect", 3), runs("reduce", 5),
             does(Kind::issue, "reduce_scatter root", "reduce", 6), runs("finish", 9)});
  const auto found = find_parting(yours, right);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->line.function, "reduce");
  EXPECT_EQ(found->line.line, 6);  // not the closing brace
  EXPECT_EQ(found->yours, "ran finish");
  EXPECT_EQ(found->reference, "issued reduce_scatter root");
}

TEST(Parting, functions_that_only_one_program_ran_are_left_out) {
  const auto yours = steps({runs("collect", 3), runs("helper", 30), runs("finish", 9)});
  const auto right = steps({runs("collect", 3), runs("inner", 40), runs("finish", 9)});
  EXPECT_FALSE(find_parting(yours, right));
}

TEST(Parting, operators_are_not_compared_if_the_functions_differ) {
  const auto yours = other_steps(
      {does(Kind::call, "mul", "own_1", 3), does(Kind::issue, "all_gather root", "own_1", 4)});
  const auto right = steps(
      {does(Kind::issue, "all_gather root", "collect", 3), does(Kind::call, "add", "collect", 4)});
  EXPECT_FALSE(find_parting(yours, right));
}

TEST(Parting, the_line_that_issued_another_collective_is_named) {
  const auto yours = other_steps({does(Kind::issue, "all_gather root", "own_1", 3),
                                  does(Kind::issue, "reduce_scatter h.1", "own_2", 5)});
  const auto right = steps({does(Kind::issue, "all_gather root", "collect", 3),
                            does(Kind::wait, "all_gather root", "finish", 4)});
  const auto found = find_parting(yours, right);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->line.function, "own_2");
  EXPECT_EQ(found->yours, "issued reduce_scatter h.1");
  EXPECT_EQ(found->reference, "waited for all_gather root");
}

TEST(Parting, a_function_that_both_programs_have_and_that_left_a_wait_out_is_named) {
  const auto yours = other_steps({does(Kind::issue, "all_gather root", "own_1", 3),
                                  runs("collect", 5), does(Kind::read, "", "own_2", 7)});
  const auto right =
      steps({does(Kind::issue, "all_gather root", "reduce", 3),
             does(Kind::wait, "all_gather root", "collect", 4), does(Kind::read, "", "finish", 7)});
  const auto found = find_parting(yours, right);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->line.function, "collect");
  EXPECT_EQ(found->line.line, 5);
  EXPECT_EQ(found->yours, "read a number from a tensor");
}

TEST(Parting, a_second_wait_for_a_collective_is_not_compared) {
  const Step issue = does(Kind::issue, "all_gather root", "own_1", 3);
  const Step wait = does(Kind::wait, "all_gather root", "own_1", 4);
  const std::vector<Step> twice{issue, wait, wait, issue, wait};
  const std::vector<Step> right{issue, wait, issue, wait};
  EXPECT_FALSE(find_parting(other_steps(twice), steps(right)));
}

TEST(Parting, a_run_that_ends_early_does_nothing_more) {
  const auto yours = other_steps({runs("own_1", 3)});
  const auto right = steps({does(Kind::issue, "all_gather root", "reduce", 3)});
  const auto found = find_parting(yours, right);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->line.function, "own_1");
  EXPECT_EQ(found->yours, "did nothing more");
}

}  // namespace
}  // namespace fsdp
