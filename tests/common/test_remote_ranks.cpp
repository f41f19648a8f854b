#include <base/refused_call.h>
#include <base/todo.h>
#include <comm/communicator_options.h>
#include <testing/judge/remote_ranks.h>
#include <testing/multi_rank.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "expect_text.h"
#include "temporary_folder.h"

namespace fsdp {
namespace {

constexpr int kResults = 9;  // file descriptor to which the judge writes results

// The tests of this suite are disabled, because they must run under a judge. Each test of the suite
// Judge below starts this program again as a judge, which runs one of them and starts this program
// once more as the program of the ranks.
class Judged : public testing::Test {
 protected:
  static bool in_program_of_ranks() { return remote_ranks::reporting(); }
};

TEST_F(Judged, DISABLED_right_ranks_pass) {
  const RankRun oracle =
      run_oracle([](TestRank& rank) { rank.observe("sum", at::arange(5).sum().item<int64_t>()); });
  for (int i = 0; i < 2; ++i) {
    const RankRun run = run_ranks(2, [&](TestRank& rank) {
      rank.observe("sum", at::arange(5).sum().item<int64_t>());
      rank.observe("tensor", at::full({3}, i));
      rank.observe("reported", in_program_of_ranks());
    });
    expect_on_all_ranks(run, "sum", oracle.at(0, "sum"));
    expect_on_all_ranks(run, "reported", true);
    expect_same_on_all_ranks(run, "tensor");
  }
}

TEST_F(Judged, DISABLED_a_rank_finds_a_fault) {
  run_ranks(2, [](TestRank& rank) { EXPECT_EQ(rank.rank(), 0) << "it is another"; });
}

TEST_F(Judged, DISABLED_the_ranks_print_that_the_test_passed) {
  const RankRun run = run_ranks(1, [](TestRank& rank) { rank.observe("value", 2); });
  if (in_program_of_ranks()) {
    std::puts("[       OK ] Judged.the_ranks_print_that_the_test_passed (0 ms)");
    _exit(0);
  }
  expect_on_all_ranks(run, "value", 1);
}

TEST_F(Judged, DISABLED_the_program_of_the_ranks_exits) {
  if (in_program_of_ranks()) _exit(0);
  run_ranks(1, [](TestRank&) {});
}

TEST_F(Judged, DISABLED_the_program_of_the_ranks_exits_at_every_start) {
  if (in_program_of_ranks()) {
    std::ofstream(std::getenv("FSDP_STARTS"), std::ios::app) << 'x';
    _exit(0);
  }
  for (int i = 0; i < 10; ++i)
    EXPECT_THROW(remote_ranks::receive(1), std::runtime_error);
}

TEST_F(Judged, DISABLED_five_runs_lose_time) {
  for (int i = 0; i < 5; ++i) {
    try_ranks(1, [](TestRank&) {
      throw std::runtime_error("the time limit (CommunicatorOptions::timeout)");
    });
  }
}

TEST_F(Judged, DISABLED_the_ranks_get_hidden_cases_and_no_seed) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const char* seed = std::getenv("FSDP_TEST_SEED");
    rank.observe("seed", seed == nullptr ? "none" : seed);
    rank.observe("hidden", hidden_cases());
    rank.observe("number", hidden_cases() ? hidden_number("x") : 0);
  });
  expect_on_all_ranks(run, "seed", "none");
  expect_on_all_ranks(run, "hidden", hidden_cases());
  expect_on_all_ranks(run, "number", hidden_cases() ? hidden_number("x") : 0);
  EXPECT_EQ(std::getenv("FSDP_TEST_SEED") != nullptr, hidden_cases());
}

TEST_F(Judged, DISABLED_a_rank_throws_a_giant_text) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const std::string giant(8'000'000, '\n');
    rank.observe("thrown", thrown_by([&] { throw std::runtime_error(giant); }));
    rank.observe("text", giant);
  });
  EXPECT_LT(run.at(0, "thrown").get<std::string>().size(), 100'000U);
  EXPECT_LT(run.at(0, "text").get<std::string>().size(), 100'000U);
  EXPECT_CONTAINS(run.at(0, "text").get<std::string>(), "(of 8000000 bytes)");
}

TEST_F(Judged, DISABLED_a_rank_makes_a_forbidden_call) {
  run_ranks(2, [](TestRank& rank) {
    if (rank.rank() == 1) fsdp_refused_call("write");
  });
}

TEST_F(Judged, DISABLED_the_ranks_leave_out_a_run) {
  if (!in_program_of_ranks()) run_ranks(1, [](TestRank&) {});
  run_ranks(2, [](TestRank&) {});
}

TEST_F(Judged, DISABLED_a_rank_reaches_a_todo) {
  run_ranks(1, [](TestRank&) { todo("a function", "1.1"); });
}

TEST_F(Judged, DISABLED_the_test_catches_a_todo) {
  EXPECT_ANY_THROW(todo("a function", "1.1"));
}

// The ranks of run_oracle() run in the judge, which has the file of the results open. The program
// of the ranks never has it open.
TEST_F(Judged, DISABLED_an_oracle_writes_a_result) {
  run_oracle([](TestRank& rank) {
    const std::string record = R"({"event":"end","suite":"Judged","name":"","outcome":"passed",)"
                               R"("text":"","milliseconds":0,"printed":0})";
    rank.observe("written", write(kResults, (record + '\n').data(), record.size() + 1));
    EXPECT_EQ(rank.rank(), 1);
  });
}

// Runs Judged.DISABLED_`test` under a judge. Returns the JSON record with the outcome of the test,
// which the judge writes when the test ends.
nlohmann::json judged(const std::string& test) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string disabled = " --gtest_also_run_disabled_tests ";
  const std::string to = std::to_string(kResults);
  const std::string command = "FSDP_RANKS_OF='" + self + disabled + "' " + self + disabled +
                              "--results_to=" + to + " --gtest_filter=Judged.DISABLED_" + test +
                              ' ' + to + ">&1 >/dev/null 2>&1";
  FILE* output = popen(command.c_str(), "r");
  std::string text;
  std::array<char, 4096> bytes;
  while (const size_t count = fread(bytes.data(), 1, bytes.size(), output))
    text.append(bytes.data(), count);
  pclose(output);
  std::istringstream lines(text);
  std::vector<nlohmann::json> records;
  for (std::string line; std::getline(lines, line);)
    records.push_back(nlohmann::json::parse(line));
  // The judge writes three records: which tests will run, the start of the test, and its end.
  EXPECT_EQ(records.size(), 3U) << text;
  return records.back();
}

TEST(Judge, the_judge_process_compares_the_observations_that_ranks_send) {
  EXPECT_EQ(judged("right_ranks_pass")["outcome"], "passed");
  const nlohmann::json record = judged("a_rank_finds_a_fault");
  EXPECT_EQ(record["outcome"], "failed");
  EXPECT_CONTAINS(std::string(record["text"]), "rank 1 threw an exception");
  EXPECT_CONTAINS(std::string(record["text"]), "it is another");
}

TEST(Judge, graded_code_cannot_pass_a_test_by_printing_exiting_or_writing_the_result_file) {
  EXPECT_EQ(judged("the_ranks_print_that_the_test_passed")["outcome"], "failed");
  EXPECT_EQ(judged("an_oracle_writes_a_result")["outcome"], "failed");
}

TEST(Judge, a_judged_test_fails_if_its_ranks_send_no_report) {
  EXPECT_CONTAINS(std::string(judged("the_program_of_the_ranks_exits")["text"]),
                  "the program of the ranks left by exit(0) before a run of 1 ranks was over");
  EXPECT_CONTAINS(std::string(judged("the_ranks_leave_out_a_run")["text"]),
                  "reported 2 ranks of 1");
}

TEST(Judge, the_judge_gives_up_after_starting_the_ranks_program_three_times_without_a_report) {
  const TemporaryFolder folder;
  const std::string starts = folder.path() + "/starts";
  setenv("FSDP_STARTS", starts.c_str(), 1);
  EXPECT_EQ(judged("the_program_of_the_ranks_exits_at_every_start")["outcome"], "passed");
  std::string counted;
  std::ifstream(starts) >> counted;
  EXPECT_EQ(counted, "xxx");
}

TEST(Judge, the_judge_runs_no_more_ranks_of_a_task_whose_hanging_runs_took_too_much_time) {
  setenv("FSDP_MOST_LOST_SECONDS", "4", 1);
  const nlohmann::json record = judged("five_runs_lose_time");
  unsetenv("FSDP_MOST_LOST_SECONDS");
  EXPECT_EQ(record["outcome"], "failed");
  EXPECT_CONTAINS(std::string(record["text"]), "not run: earlier runs of this task did not end");
}

TEST(Judge, ranks_under_a_judge_get_the_hidden_cases_but_not_the_seed_in_their_environment) {
  EXPECT_EQ(judged("the_ranks_get_hidden_cases_and_no_seed")["outcome"], "passed");
  setenv("FSDP_TEST_SEED", "5eed", 1);
  EXPECT_EQ(judged("the_ranks_get_hidden_cases_and_no_seed")["outcome"], "passed");
  unsetenv("FSDP_TEST_SEED");
}

TEST(Judge, the_judge_shortens_a_giant_text_of_a_rank_before_it_compares_it) {
  EXPECT_EQ(judged("a_rank_throws_a_giant_text")["outcome"], "passed");
}

TEST(Judge, the_judge_names_a_forbidden_call_of_a_rank) {
  EXPECT_CONTAINS(std::string(judged("a_rank_makes_a_forbidden_call")["text"]),
                  "it called write, which a task's code may not call; remove the call");
}

TEST(Judge, a_test_that_catches_a_todo_still_counts_as_not_started) {
  EXPECT_EQ(judged("the_test_catches_a_todo")["outcome"], "not started");
}

TEST(Judge, a_test_that_reaches_a_todo_counts_as_not_started) {
  const nlohmann::json record = judged("a_rank_reaches_a_todo");
  EXPECT_EQ(record["outcome"], "not started");
  EXPECT_EQ(record["text"], "a function (problem 1.1)");
}

// In this test, the process of the test is the judge, and the program of the ranks is a script that
// sends given bytes.
TEST(Judge, a_malformed_report_of_the_ranks_throws_in_the_judge) {
  const TemporaryFolder folder;
  const std::string script = folder.write("ranks.sh",
                                          "for argument; do case $argument in --report_to=*)\n"
                                          "cat \"$1\" >/proc/self/fd/${argument#*=};; esac; done");
  setenv("FSDP_RANKS_OF", ("sh " + script + ' ' + folder.path() + "/stream").c_str(), 1);
  const auto refusal = [&](const std::string& bytes) {
    folder.write("stream", bytes);
    return error_of<std::runtime_error>([] { remote_ranks::receive(2); });
  };
  const auto with_length = [](uint64_t length, const std::string& bytes) {
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + bytes;
  };
  // CBOR of arrays of one element, nested 8,000,000 deep.
  const std::string deep(8'000'000, '\x81');
  const std::string huge_array = "\x9b\x7f\xff\xff\xff\xff\xff\xff\xff\x01";
  const std::string huge_text = "\x7b\x7f\xff\xff\xff\xff\xff\xff\xff\x61";
  for (const std::string& stream :
       {with_length(0, ""), with_length(UINT64_MAX, "x"), with_length((64 << 20) + 1, "x"),
        with_length(deep.size(), deep), with_length(huge_array.size(), huge_array),
        with_length(huge_text.size(), huge_text)})
    EXPECT_CONTAINS(refusal(stream), "sent something that is not a report");
  for (const std::string& stream : {std::string("short"), with_length(5, "")})
    EXPECT_CONTAINS(refusal(stream), "left by exit(0)");
  unsetenv("FSDP_RANKS_OF");
}

}  // namespace
}  // namespace fsdp
