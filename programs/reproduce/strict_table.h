#pragma once

#include <reproduce/table.h>

#include <filesystem>

namespace fsdp {

// Runs the published strict test on 1, 2, 4 and 8 ranks, with fully_shard() and ShardedOptimizer:
// one SGD step of Linear(4, 3) without bias. The loss is the mean squared error of two rows, the
// same rows on every rank. Returns the table of the results. The ranks write their parameters to
// files in `folder`. Requires: the calling process has not run a torch operator, because it forks
// the ranks.
Table strict_table(const std::filesystem::path& folder);

}  // namespace fsdp
