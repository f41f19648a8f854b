#pragma once

#include <base/torch.h>
#include <testing/multi_rank.h>

// What a run that failed leaves to the next one.
namespace fsdp {

inline void expect_next_run_works() {
  const RankRun run =
      run_ranks(2, [](TestRank& rank) { rank.observe("sum", torch::ones(3).sum()); });
  EXPECT_EQ(run.tensor(1, "sum").value(0), 3);
}

}  // namespace fsdp
