#include <base/torch.h>
#include <testing/multi_rank.h>

#include "expect_text.h"
#include "failures_of.h"

// Tests of expect_part_of(), which expects that each rank holds only a part of the model, and of
// expect_no_copies(), which expects that no rank holds a copy of what other ranks own.

using namespace fsdp;

namespace {

// Runs ranks. Each reports that it holds `tensors` bytes in tensors and `besides` bytes in other
// memory.
RankRun taken_by(int world_size, int64_t tensors, int64_t besides) {
  return run_ranks(world_size, [=](TestRank& rank) {
    rank.observe("held", nlohmann::json{{"tensors", tensors}, {"besides", besides}});
  });
}

TEST(ExpectPartOf,
     expect_part_of_fails_unless_each_rank_holds_a_part_and_all_ranks_hold_nearly_the_whole) {
  const auto told = [](int world_size, int64_t tensors, int64_t besides, int64_t whole) {
    const RankRun run = taken_by(world_size, tensors, besides);
    return failures_of([&] { expect_part_of(run, "held", whole); });
  };
  EXPECT_EQ(told(1, 40, 24, 40), "");
  EXPECT_EQ(told(2, 40, 24, 65), "");
  EXPECT_CONTAINS(told(2, 40, 24, 64),
                  "\"held\"\n  ranks 0, 1: holds 64 bytes in tensors and besides, expected fewer "
                  "than 64: a part of the whole");
  EXPECT_CONTAINS(told(1, 0, 0, 64), "all ranks: hold 0 bytes");
  EXPECT_EQ(told(2, 28, 0, 64), "");
  EXPECT_CONTAINS(told(2, 27, 0, 64),
                  "ranks 0, 1: holds 27 bytes in tensors\n  all ranks: hold 54 bytes in tensors, "
                  "expected at least 56: together the ranks hold the whole");
}

TEST(ExpectNoCopies, expect_no_copies_fails_if_a_rank_holds_a_copy_of_what_other_ranks_own) {
  const auto told = [](int world_size, int64_t besides) {
    const RankRun run = taken_by(world_size, 1000, besides);
    return failures_of([&] {
      expect_no_copies(run, "held", 64);
      expect_no_copies(run, "what no rank has observed", 64);
    });
  };
  EXPECT_EQ(told(1, 64), "");
  EXPECT_EQ(told(2, 24), "");
  EXPECT_CONTAINS(
      told(2, 32),
      "ranks 0, 1: holds 32 bytes besides tensors, expected fewer than 25: a rank must not "
      "keep a copy of what other ranks own, in any memory");
}

}  // namespace
