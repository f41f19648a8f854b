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

constexpr int kResults = 9;  // the judge's file of results

// Not run by themselves: a test below runs one of them in another process, as a judge of this very
// program.
class Judged : public testing::Test {
 protected:
  static bool in_program_of_ranks() { return remote_ranks::reporting(); }
};

TEST_F(Judged, DISABLED_passes) {
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

TEST_F(Judged, DISABLED_says_what_ranks_found_wrong) {
  run_ranks(2, [](TestRank& rank) { EXPECT_EQ(rank.rank(), 0) << "it is another"; });
}

TEST_F(Judged, DISABLED_is_not_decided_by_the_program_of_the_ranks) {
  const RankRun run = run_ranks(1, [](TestRank& rank) { rank.observe("value", 2); });
  if (in_program_of_ranks()) {
    std::puts("[       OK ] Judged.is_not_decided_by_the_program_of_the_ranks (0 ms)");
    _exit(0);
  }
  expect_on_all_ranks(run, "value", 1);
}

TEST_F(Judged, DISABLED_fails_when_the_program_of_the_ranks_leaves) {
  if (in_program_of_ranks()) _exit(0);
  run_ranks(1, [](TestRank&) {});
}

TEST_F(Judged, DISABLED_starts_a_program_that_leaves) {
  if (in_program_of_ranks()) {
    std::ofstream(std::getenv("FSDP_STARTS"), std::ios::app) << 'x';
    _exit(0);
  }
  for (int i = 0; i < 10; ++i)
    EXPECT_THROW(remote_ranks::receive(1), std::runtime_error);
}

TEST_F(Judged, DISABLED_loses_time) {
  for (int i = 0; i < 5; ++i) {
    try_ranks(1, [](TestRank&) {
      throw std::runtime_error("the time limit (CommunicatorOptions::timeout)");
    });
  }
}

TEST_F(Judged, DISABLED_finds_no_seed_but_runs_hidden_cases) {
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

TEST_F(Judged, DISABLED_throws_a_giant_text) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const std::string giant(8'000'000, '\n');
    rank.observe("thrown", thrown_by([&] { throw std::runtime_error(giant); }));
    rank.observe("text", giant);
  });
  EXPECT_LT(run.at(0, "thrown").get<std::string>().size(), 100'000U);
  EXPECT_LT(run.at(0, "text").get<std::string>().size(), 100'000U);
  EXPECT_CONTAINS(run.at(0, "text").get<std::string>(), "(of 8000000 bytes)");
}

TEST_F(Judged, DISABLED_calls_what_is_refused) {
  run_ranks(2, [](TestRank& rank) {
    if (rank.rank() == 1) fsdp_refused_call("write");
  });
}

TEST_F(Judged, DISABLED_fails_when_a_run_is_left_out) {
  if (!in_program_of_ranks()) run_ranks(1, [](TestRank&) {});
  run_ranks(2, [](TestRank&) {});
}

TEST_F(Judged, DISABLED_is_not_started_where_ranks_are_not) {
  run_ranks(1, [](TestRank&) { todo("a function", "1.1"); });
}

TEST_F(Judged, DISABLED_catches_a_todo) {
  EXPECT_ANY_THROW(todo("a function", "1.1"));
}

// Not in the program of the ranks, which never has the file of the results.
TEST_F(Judged, DISABLED_writes_a_result) {
  run_oracle([](TestRank& rank) {
    const std::string record = R"({"event":"end","suite":"Judged","name":"","outcome":"passed",)"
                               R"("text":"","milliseconds":0,"printed":0})";
    rank.observe("written", write(kResults, (record + '\n').data(), record.size() + 1));
    EXPECT_EQ(rank.rank(), 1);
  });
}

// The record of the end of a test that a judge has run.
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
  EXPECT_EQ(records.size(), 3U) << text;  // the plan, the start, the end
  return records.back();
}

TEST(RemoteRanks, are_compared_in_the_judge) {
  EXPECT_EQ(judged("passes")["outcome"], "passed");
  const nlohmann::json record = judged("says_what_ranks_found_wrong");
  EXPECT_EQ(record["outcome"], "failed");
  EXPECT_CONTAINS(std::string(record["text"]), "rank 1 threw an exception");
  EXPECT_CONTAINS(std::string(record["text"]), "it is another");
}

TEST(RemoteRanks, decide_nothing_by_what_their_program_prints_or_returns_or_writes) {
  EXPECT_EQ(judged("is_not_decided_by_the_program_of_the_ranks")["outcome"], "failed");
  EXPECT_EQ(judged("writes_a_result")["outcome"], "failed");
}

TEST(RemoteRanks, fail_the_test_if_they_do_not_report) {
  EXPECT_CONTAINS(std::string(judged("fails_when_the_program_of_the_ranks_leaves")["text"]),
                  "the program of the ranks left by exit(0) before a run of 1 ranks was over");
  EXPECT_CONTAINS(std::string(judged("fails_when_a_run_is_left_out")["text"]),
                  "reported 2 ranks of 1");
}

TEST(RemoteRanks, are_given_up_after_three_starts_without_a_report) {
  const TemporaryFolder folder;
  const std::string starts = folder.path() + "/starts";
  setenv("FSDP_STARTS", starts.c_str(), 1);
  EXPECT_EQ(judged("starts_a_program_that_leaves")["outcome"], "passed");
  std::string counted;
  std::ifstream(starts) >> counted;
  EXPECT_EQ(counted, "xxx");
}

TEST(RemoteRanks, are_given_up_when_a_task_has_lost_its_time) {
  setenv("FSDP_MOST_LOST_SECONDS", "4", 1);
  const nlohmann::json record = judged("loses_time");
  unsetenv("FSDP_MOST_LOST_SECONDS");
  EXPECT_EQ(record["outcome"], "failed");
  EXPECT_CONTAINS(std::string(record["text"]), "not run: earlier runs of this task did not end");
}

TEST(RemoteRanks, have_the_seed_of_hidden_cases_and_their_environment_has_not) {
  EXPECT_EQ(judged("finds_no_seed_but_runs_hidden_cases")["outcome"], "passed");
  setenv("FSDP_TEST_SEED", "5eed", 1);
  EXPECT_EQ(judged("finds_no_seed_but_runs_hidden_cases")["outcome"], "passed");
  unsetenv("FSDP_TEST_SEED");
}

TEST(RemoteRanks, a_giant_text_is_shortened_before_it_is_compared) {
  EXPECT_EQ(judged("throws_a_giant_text")["outcome"], "passed");
}

TEST(RemoteRanks, the_call_that_is_refused_is_named) {
  EXPECT_CONTAINS(std::string(judged("calls_what_is_refused")["text"]),
                  "it called write, which a task's code may not call; remove the call");
}

TEST(Results, are_not_started_if_a_test_passed_because_it_reached_a_todo) {
  EXPECT_EQ(judged("catches_a_todo")["outcome"], "not started");
}

TEST(RemoteRanks, are_not_started_if_they_are_not_written_yet) {
  const nlohmann::json record = judged("is_not_started_where_ranks_are_not");
  EXPECT_EQ(record["outcome"], "not started");
  EXPECT_EQ(record["text"], "a function (problem 1.1)");
}

// The judge in this very process, with programs of ranks that send given bytes.
TEST(RemoteRanks, send_no_report_in_bytes_of_odd_lengths_and_depths) {
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
  const std::string deep(8'000'000, '\x81');  // an array in an array in ...
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
