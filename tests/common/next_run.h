#pragma once

#include <base/torch.h>
#include <testing/multi_rank.h>

// Expects that ranks can be run in this process, which shows that a failed run left nothing behind
// that disturbs the next one.
namespace fsdp {

inline void expect_next_run_works() {
  const RankRun run =
      run_ranks(2, [](TestRank& rank) { rank.observe("sum", torch::ones(3).sum()); });
  EXPECT_EQ(run.tensor(1, "sum").value(0), 3);
}

}  // namespace fsdp
