#include <comm/communicator_options.h>
#include <comm/diagnosis.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <sstream>

#include "expect_text.h"

namespace fsdp {
namespace {

Call call(Operation operation, const std::string& unit, int64_t numel = 262'144) {
  Call record;
  record.operation = operation;
  record.dtype = at::kFloat;
  record.numel = numel;
  record.unit = UnitName(unit);
  return record;
}

Call gather(const std::string& unit) {
  return call(Operation::all_gather, unit);
}
Call reduce(const std::string& unit) {
  return call(Operation::reduce_scatter, unit);
}

// Returns a history of `calls`, and numbers these calls from 0.
CallHistory history(std::vector<Call> calls) {
  for (size_t i = 0; i < calls.size(); ++i)
    calls[i].sequence = i;
  return {std::move(calls)};
}

std::string line_with(const std::string& text, const std::string& part) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(part) != std::string::npos) return line;
  }
  return "no line has " + part + ":\n" + text;
}

Group all(const std::vector<CallHistory>& ranks) {
  return Group::world(static_cast<int>(ranks.size()));
}

std::string cause_of_difference(uint64_t sequence, const std::vector<CallHistory>& ranks) {
  return line_with(describe_mismatch(sequence, all(ranks), ranks), "likely cause: ").substr(14);
}

// Returns the likely cause that the message names if the first call of rank 0 is `one` and that of
// rank 1 is `other`.
std::string cause_of_first(const Call& one, const Call& other) {
  return cause_of_difference(0, {history({one}), history({other})});
}

TEST(Diagnosis,
     the_message_shows_the_differing_calls_the_cause_and_the_last_five_calls_of_every_rank) {
  const std::vector<Call> common{gather("root"), gather("layers.0"), gather("layers.1"),
                                 gather("layers.2"), reduce("layers.2")};
  auto usual = common, odd = common;
  usual.insert(usual.end(), {gather("layers.1"), reduce("layers.1")});
  odd.push_back(reduce("layers.1"));
  EXPECT_EQ(describe_mismatch(5, Group::world(4),
                              {history(usual), history(odd), history(usual), history(usual)}),
            "collective #5 differs between ranks:\n"
            "  ranks 0, 2 and 3  all_gather layers.1 (262144 x float, 1.0 MB)\n"
            "  rank 1            reduce_scatter layers.1 (262144 x float, 1.0 MB)\n"
            "likely cause: rank 1 left out all_gather layers.1\n"
            "last calls  ranks 0, 2 and 3             rank 1\n"
            "  #1                                     all_gather layers.0\n"
            "  #2        all_gather layers.1          all_gather layers.1\n"
            "  #3        all_gather layers.2          all_gather layers.2\n"
            "  #4        reduce_scatter layers.2      reduce_scatter layers.2\n"
            "> #5        all_gather layers.1          reduce_scatter layers.1\n"
            "  #6        reduce_scatter layers.1      -");
}

TEST(Diagnosis, the_message_names_the_rank_whose_collectives_differ_from_those_of_the_majority) {
  const Call a = gather("a"), b = gather("b"), c = gather("c");
  const auto cause = [](const std::vector<Call>& usual, const std::vector<Call>& odd) {
    const uint64_t last = usual.size() - 1;
    return cause_of_difference(last, {history(usual), history(usual), history(odd)});
  };
  EXPECT_EQ(cause({a, reduce("b")}, {a, c, reduce("b")}),
            "rank 2 made all_gather c, which ranks 0 and 1 did not make");
  EXPECT_EQ(cause({b, a, b}, {b, a, a}), "rank 2 called all_gather a twice");
  EXPECT_EQ(cause({a, b, c}, {a, b, b}), "rank 2 called all_gather b twice, or has no unit c");
  EXPECT_EQ(cause({a, reduce("a")}, {a, call(Operation::all_reduce, "a")}),
            "rank 2 left out reduce_scatter a, or called all_reduce a out of turn");
}

TEST(Diagnosis, the_message_blames_no_rank_if_two_ranks_disagree_without_further_evidence) {
  EXPECT_EQ(cause_of_first(gather("a"), gather("b")),
            "one side left out or added a call, or runs its units in a different order");
  EXPECT_EQ(cause_of_first(gather("a"), reduce("a")),
            "one side left out a call for a, or made one out of turn");
  EXPECT_EQ(cause_of_first(gather("a"), reduce("b")),
            "one side took another path through the program than the other ranks");
  EXPECT_EQ(
      cause_of_first(gather("head"), call(Operation::all_gather, "head", 7)),
      "head has another size on rank 1: was another model, wrap policy or world size sharded");
}

TEST(Diagnosis, the_message_blames_the_rank_whose_collectives_deviate_from_its_earlier_steps) {
  const std::vector<Call> step{gather("a"), gather("b"), reduce("b"), reduce("a")};
  std::vector<Call> trains = step;
  trains.insert(trains.end(), step.begin(), step.end());
  std::vector<Call> evaluates = trains;
  evaluates[6] = gather("a");
  for (const bool first : {false, true}) {
    const auto one = history(first ? evaluates : trains),
               other = history(first ? trains : evaluates);
    const std::string who = first ? "rank 0" : "rank 1";
    EXPECT_CONTAINS(describe_mismatch(6, Group::world(2), {one, other}),
                    "likely cause: " + who +
                        " called all_gather a where reduce_scatter b came before: was the model");
  }
}

TEST(Diagnosis, the_message_names_the_function_that_only_some_ranks_called) {
  Call saves = gather("a"), sums = call(Operation::all_reduce, kState);
  saves.caller = UnitName("state_dict()");
  sums.caller = UnitName("average_buffers()");
  const std::string end = " did not call: all ranks must call it together";
  EXPECT_EQ(cause_of_first(gather("a"), saves), "rank 1 called state_dict(), which rank 0" + end);
  EXPECT_EQ(cause_of_first(saves, gather("a")), "rank 0 called state_dict(), which rank 1" + end);
  EXPECT_EQ(cause_of_first(saves, sums),
            "rank 0 called state_dict(), which rank 1 did not call, but average_buffers(): all");
  EXPECT_EQ(saves.text(), "all_gather a (262144 x float, 1.0 MB) in state_dict()");
  EXPECT_EQ(sums.text(), "all_reduce average_buffers() (262144 x float, 1.0 MB)");
}

TEST(Diagnosis, the_message_shows_the_last_call_of_a_missing_rank) {
  const auto ahead = history({gather("a"), gather("b")});
  EXPECT_EQ(describe_missing_rank(1, 1, Group::world(2), {ahead, history({gather("a")})}),
            "likely cause: rank 1 computes for longer than the time limit "
            "(CommunicatorOptions::timeout), is\n"
            "  stuck, or has ended its loop a step early\n"
            "last calls  rank 0                       rank 1\n"
            "  #0        all_gather a                 all_gather a\n"
            "> #1        all_gather b                 -");
  EXPECT_EQ(
      line_with(describe_missing_rank(0, 1, Group::world(2), {ahead, {}}), "likely"),
      "likely cause: rank 1 has made no call yet: it is still starting, is stuck, or has ended");
  EXPECT_EQ(line_with(describe_missing_rank(1, 1, Group::world(2), {ahead, ahead}), "likely"),
            "likely cause: a handle that rank 1 never waits for, or waits for in another order");
}

TEST(Diagnosis, the_message_says_how_a_missing_rank_stopped_or_ended) {
  const auto cause = [](RankStatus status) {
    auto missing = history({gather("a"), gather("b")});
    missing.status = status;
    return line_with(
        describe_missing_rank(1, 1, Group::world(2), {history({gather("a")}), missing}), "likely");
  };
  using enum RankStatus::Kind;
  EXPECT_EQ(
      cause({stopped, SIGSTOP}),
      "likely cause: rank 1 was stopped by signal 19 (Stopped (signal)); SIGCONT continues it");
  EXPECT_EQ(cause({killed, SIGKILL}), "likely cause: rank 1 was killed by signal 9 (Killed)");
  EXPECT_EQ(cause({ended, 0}),
            "likely cause: rank 1 left its function, or called exit(), while others had calls to "
            "make: do all");
}

TEST(UnitName, a_unit_name_that_is_too_long_loses_its_beginning_and_keeps_its_end) {
  EXPECT_EQ(gather(std::string(100, 'x').append(".layers.17")).unit,
            std::string(53, 'x').append(".layers.17"));
}

}  // namespace
}  // namespace fsdp
