#pragma once

#include <reproduce/table.h>

#include <filesystem>

namespace fsdp {

// The published strict test: Linear(4, 3) without bias, the mean squared error on the same two rows
// on every rank, one step of SGD; with fully_shard() and ShardedOptimizer on 1, 2, 4 and 8 ranks.
// The ranks write what they saw to files in `folder`. The calling process must not have run a torch
// operator.
Table strict_table(const std::filesystem::path& folder);

}  // namespace fsdp
