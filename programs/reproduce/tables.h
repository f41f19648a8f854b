#pragma once

#include <reproduce/table.h>
#include <reproduce/train_runs.h>

#include <string>
#include <vector>

namespace fsdp {

using Tables = std::vector<Table>;

// Tables that rows.cpp does not describe.

// Losses, parameter sums and hashes of the published recipe on the small model, beside those that
// were published.
Table equivalence_table(const Train& train);

// The published strict test: Linear(4, 3) without bias, the mean squared error on the same two rows
// on every rank, one step of SGD; with fully_shard() and ShardedOptimizer on 1, 2, 4 and 8 ranks.
// The ranks leave what they saw in `folder`. To be called by a process that has run no torch
// operator.
Table strict_table(const std::filesystem::path& folder);

}  // namespace fsdp
