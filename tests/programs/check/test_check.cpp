#include <check/check_course.h>
#include <check/print.h>
#include <check/score.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <common/expect_text.h>

namespace fsdp {
namespace {

std::string printed(const std::function<void()>& print) {
  testing::internal::CaptureStdout();
  print();
  return testing::internal::GetCapturedStdout();
}

// Returns what `check` prints about tasks whose tests do not run.
std::string check_without_tests(Settings settings) {
  settings.stacks.assign(course().size(), "mine");
  return printed([&] { EXPECT_EQ(check_course(settings), 1); });
}

TEST(Check, check_shows_a_blank_task_as_not_started_without_running_a_program) {
  EXPECT_EQ(check_without_tests({.what = "2", .blank = {2}}),
            "2.1 layout               ................   0.0 of   4   not started\n"
            "2.2 shard                ................   0.0 of   4   not started\n"
            "2.3 unshard              ................   0.0 of   4   not started\n"
            "2.4 reshard              ................   0.0 of   4   not started\n"
            "2.5 flat_gradient        ................   0.0 of   4   not started\n"
            "+ 2.6 mixed_precision    ................   0.0 of   4   not started\n"
            "task 2 flat_parameter    ................   0.0 of  20   not started\n"
            "\n"
            "Nothing of this is written yet, so this is how it should look.\n"
            "Next: problem 2.1 layout, in tasks/task2_*/; then ./fsdp check 2.1\n");
}

TEST(Check, check_shows_why_the_tests_of_a_task_do_not_run) {
  const std::string text =
      check_without_tests({.broken = {2}, .rejected = {3}, .blank = {0, 1, 4, 5, 6, 7}});
  EXPECT_CONTAINS(text, "0.0 of  20   does not compile\n");
  EXPECT_CONTAINS(text, "rejected\n");
  EXPECT_CONTAINS(text, "all                      ................   0.0 of 120   not started\n");
  EXPECT_CONTAINS(text, "Next: problem 1.1 ");
}

TaskResult result_of(int task, std::vector<TestResult> tests) {
  TaskResult result;
  result.task = &course().at(static_cast<size_t>(task));
  result.tests = std::move(tests);
  for (const Problem& problem : result.task->problems) {
    const Tally of_problem = tally(problem, result.tests);
    if (of_problem.tests() > 0)
      result.add(problem, of_problem);  // a problem without results counts as not selected
  }
  return result;
}

TEST(Check, check_names_the_failed_test_without_which_a_task_has_no_points) {
  TaskResult result;
  result.task = &course()[2];
  result.points_withheld = true;
  const std::string text = printed([&] { print_task(Settings(), result); });
  EXPECT_CONTAINS(text, "This task has no points until the following test passes");
  EXPECT_CONTAINS(text, "    " + course()[2].sentinel + "\n");
}

TEST(Check, check_states_over_which_reference_or_own_solutions_each_task_was_tested) {
  Settings settings;
  settings.stacks = {"mine", "mine",      "mine_on_1", "mine_on_2",
                     "mine", "mine_on_3", "mine_on_3", "mine_on_6"};
  std::vector<TaskResult> results;
  for (const Task& task : course())
    results.push_back(result_of(task.number, {{task.problems[0].suites[0], "a", Outcome::passed}}));
  EXPECT_EQ(printed([&] { print_bases(settings, results); }),
            "Task 2 was tested over the reference solution of task 1.\n"
            "Task 3 was tested over the reference solutions of tasks 1 and 2.\n"
            "Task 4 was tested over your own tasks 1 to 3.\n"
            "Task 5 was tested over the reference solutions of tasks 1 to 3 and your own task 4.\n"
            "Task 6 was tested over the reference solutions of tasks 1 to 3 and your own tasks 4 "
            "and 5.\n"
            "Task 7 was tested over the reference solutions of tasks 1 to 6.\n");
  settings.stacks.assign(course().size(), "second");
  EXPECT_EQ(printed([&] { print_bases(settings, results); }),
            "Tested the stack second, not tasks/.\n");
}

// Returns what `check` prints about the results of one task.
std::string report(const std::string& what, const TaskResult& task) {
  Settings settings;
  settings.what = what;
  settings.stacks.assign(course().size(), "mine");
  return printed([&] {
    print_task(settings, task);
    std::printf("%s", next_step(settings, {task}).second.c_str());
  });
}

TEST(Check, check_names_no_next_step_if_no_test_runs_on_the_selected_numbers_of_ranks) {
  TaskResult task;
  task.task = &course().at(2);
  for (const Problem& problem : task.task->problems)
    task.add(problem, tally(problem, {}));
  const std::string text = report("2", task);
  EXPECT_CONTAINS(text, "no test on these numbers of ranks");
  EXPECT_LACKS(text, "Next");
  EXPECT_LACKS(text, "Nothing of this is written");
}

TEST(Check, check_names_the_unwritten_function_of_another_task_that_a_test_needs) {
  const TaskResult task =
      result_of(5, {{"T5_1_step_on_shards", "a", Outcome::not_started, "flat_layout (problem 2.1)"},
                    {"T5_2_padding", "b", Outcome::not_started, "flat_layout (problem 2.1)"}});
  EXPECT_EQ(
      report("5", task),
      "5.1 step_on_shards       ................   0.0 of   7   needs flat_layout (problem 2.1)\n"
      "5.2 padding              ................   0.0 of   3   needs flat_layout (problem 2.1)\n"
      "task 5 sharded_optimizer ................   0.0 of  10   needs flat_layout (problem 2.1)\n"
      "\n"
      "The tests of problem 5.1 need a function that is still to be written: flat_layout "
      "(problem 2.1)\n"
      "Next: problem 2.1 layout, in tasks/task2_*/; then ./fsdp check 5.1\n");
}

TEST(Check, check_shows_an_extension_but_does_not_require_it) {
  std::vector<TestResult> tests;
  for (const char* suite :
       {"T4_1_pre_backward", "T4_2_reduce_scatter", "T4_3_exactly_once", "T4_4_finish"})
    tests.push_back({suite, "a", Outcome::passed});
  tests.push_back({"T4_5_accumulate", "b", Outcome::failed});
  const TaskResult task = result_of(4, tests);
  EXPECT_TRUE((CourseResult{{task}, task.sum, task.extensions}).complete());
  EXPECT_EQ(report("4", task),
            "4.1 pre_backward         ################   4.0 of   4   complete, 1 tests\n"
            "4.2 reduce_scatter       ################   6.0 of   6   complete, 1 tests\n"
            "4.3 exactly_once         ################   6.0 of   6   complete, 1 tests\n"
            "4.4 finish               ################   4.0 of   4   complete, 1 tests\n"
            "+ 4.5 accumulate         ................   0.0 of   5   0 passed, 1 failed, 0 not "
            "started\n"
            "task 4 backward_hooks    ################  20.0 of  20   complete, 4 tests\n");
}

TEST(Check, check_names_the_next_problem_and_the_folder_of_its_functions) {
  const auto next = [](const std::string& problem, const std::vector<TestResult>& tests) {
    const TaskResult task = result_of(problem[0] - '0', tests);
    EXPECT_FALSE((CourseResult{{task}, task.sum, task.extensions}).complete());
    const std::string text = report(problem, task);
    EXPECT_LACKS(text, "Nothing of this is written yet");
    return text.substr(std::min(text.find("\nNext: "), text.size()));
  };
  // The next step is an extension only if nothing else was selected. Problem 7.7 has no functions
  // of its own, so its code is written in the task's folder.
  EXPECT_CONTAINS(next("4.6", {{"T4_6_checkpointed_units", "a", Outcome::failed}}),
                  "Next: problem 4.6 checkpoint_activations, in tasks/extensions/task4_*/; ");
  EXPECT_CONTAINS(next("7.7", {{"T7_7_hybrid", "a", Outcome::failed}}),
                  "Next: problem 7.7 hybrid, in tasks/task7_*/; ");
  // The next step is a problem that fails, even if this problem needs another one that is not
  // started.
  EXPECT_CONTAINS(next("6.2", {{"T6_2_forward", "a", Outcome::failed},
                               {"T6_2_forward", "b", Outcome::not_started,
                                "Prefetcher::pre_backward (problem 6.3)"}}),
                  "Next: problem 6.2 forward,");
}

TEST(Check, check_suggests_an_unstarted_task_1_last_if_its_reference_solution_is_used) {
  Settings settings;
  settings.stacks.assign(course().size(), "mine");
  settings.stacks[2] = "mine_on_1";
  const auto outcome = [](int task, Outcome value) {
    return result_of(task, {{course().at(task).problems[0].suites[0], "a", value}});
  };
  const auto next = [&](Outcome one, Outcome two) {
    return next_step(settings, {outcome(1, one), outcome(2, two)}).second;
  };
  EXPECT_CONTAINS(next(Outcome::not_started, Outcome::not_started), "Next: problem 2.1 ");
  EXPECT_CONTAINS(next(Outcome::not_started, Outcome::passed), "Next: problem 1.1 ");
  EXPECT_CONTAINS(next(Outcome::failed, Outcome::not_started), "Next: problem 1.1 ");
  settings.stacks[2] = "mine";
  EXPECT_CONTAINS(next(Outcome::not_started, Outcome::failed), "Next: problem 1.1 ");
}

TEST(Check, an_optional_task_is_shown_with_its_extension_points_and_comes_next_only_if_selected) {
  Settings settings;
  settings.stacks.assign(course().size(), "mine");
  const auto outcome = [](int task, Outcome value) {
    return result_of(task, {{course().at(task).problems[0].suites[0], "a", value}});
  };
  const std::vector<TaskResult> tasks{outcome(0, Outcome::not_started),
                                      outcome(1, Outcome::not_started)};
  EXPECT_CONTAINS(next_step(settings, tasks).second, "Next: problem 1.1 ");
  EXPECT_EQ(printed([&] { print_task(settings, tasks[0]); }),
            "+ task 0 ddp             ................   0.0 of   3   not started\n");
  EXPECT_EQ(next_step(settings, {tasks[0]}).first, nullptr);
  EXPECT_CONTAINS(html_map(settings, {{tasks[0]}, {}, {}}), "Every task is complete.");
  settings.what = "0";
  EXPECT_CONTAINS(next_step(settings, {tasks[0]}).second, "Next: problem 0.1 ");
}

TEST(Check, the_html_map_of_the_course_shows_done_problems_and_tasks_that_can_begin) {
  Settings settings;
  settings.stacks.assign(course().size(), "mine_on_1");
  CourseResult course{{result_of(1, {{"T1_1_redirect", "a", Outcome::not_started}}),
                       result_of(2, {{"T2_1_layout", "a", Outcome::passed}}),
                       result_of(3, {{"T3_1_pre_forward", "a", Outcome::failed}}),
                       result_of(4, {{"T4_1_pre_backward", "a", Outcome::not_started, "f<T>"}})},
                      {},
                      {}};
  const std::string page = html_map(settings, course);
  for (const char* part :
       {"<p>Next: problem 3.1 pre_forward, in tasks/task3_*/; then ./fsdp check 3.1\n</p>",
        "task ready'><b>1<", "task complete'><b>&#10003;<", "task begun'><b>3<",
        "task waits'><b>4<", ">can begin<",
        ">complete; stands on the reference solution of task 1<",
        ">begins after task 3; stands on the reference solution of task 1 and your own tasks",
        ">2.1 layout</span><span>4.0 of 4<", ">not started<", ">needs f&lt;T><",
        ">next; 0 of 1 tests passed<"})
    EXPECT_CONTAINS(page, part);
  EXPECT_LACKS(page, "http");
}

TEST(Check, check_names_the_test_whose_timeline_was_written) {
  std::vector<TestResult> tests{{"T2_3_unshard", "a/W2", Outcome::passed},
                                {"T2_3_unshard", "b/W2", Outcome::failed},
                                {"T2_3_unshard", "c/W2", Outcome::passed}};
  EXPECT_EQ(printed([&] { print_timeline("t.txt", tests); }), "");
  tests[0].timeline = tests[1].timeline = true;  // the second timeline overwrote the first one
  EXPECT_EQ(printed([&] { print_timeline("t.txt", tests); }),
            "timeline of T2_3_unshard.b/W2: t.txt\n");
}

TEST(Check, check_counts_the_tests_that_were_not_run_and_shows_the_test_that_hangs) {
  TestResult hangs{"T2_4_reshard", "b/W2", Outcome::failed, "was still running"};
  TestResult left{"T2_4_reshard", "a/W2", Outcome::failed,
                  "not run: T2_4_reshard.b/W2 did not end\n"};
  left.not_run = true;
  TestResult more = left;
  more.name = "c/W2";
  EXPECT_EQ(telling_failure({left, hangs, more})->name, "b/W2");
  EXPECT_EQ(telling_failure({left, more})->name, "a/W2");
  const Settings settings{.stacks = std::vector<std::string>(course().size(), "mine")};
  const std::string text = printed([&] { print_failures(settings, {left, hangs, more}); });
  EXPECT_CONTAINS(text,
                  "failed: T2_4_reshard.b W2\n"
                  "not run: T2_4_reshard.b/W2 did not end; so 2 more tests count as failed\n");
  EXPECT_LACKS(text, "failed: T2_4_reshard.a");
}

TEST(Check, check_suggests_the_command_why_for_the_code_that_was_tested) {
  TestResult wrong{"T2_4_reshard", "b/W2", Outcome::failed, "is 3, expected 4"};
  const auto offered = [&](const std::string& stack) {
    const Settings settings{.stacks = std::vector<std::string>(course().size(), stack)};
    return printed([&] { print_failures(settings, {wrong}); });
  };
  const std::string command = "\nWhy: ./fsdp why 2.4 --test b/W2";
  EXPECT_CONTAINS(offered("mine_on_1"), command + "\n");
  EXPECT_CONTAINS(offered("mine"), command + " --base mine\n");
  EXPECT_CONTAINS(offered("reference"), command + " --solutions\n");
  wrong.timed_out = true;
  EXPECT_LACKS(offered("mine"), "Why:");
}

TEST(Check, the_json_of_check_has_the_score_of_each_problem) {
  const TaskResult result =
      result_of(2, {{"T2_1_layout", "a/W1", Outcome::passed},
                    {"T2_1_layout", "b/W1", Outcome::failed, "is 3"},
                    {"T2_2_shard", "c/W1", Outcome::not_started, "shard (problem 2.2)"}});
  const auto json = nlohmann::json::parse(to_json({{result}, result.sum, result.extensions}));
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
