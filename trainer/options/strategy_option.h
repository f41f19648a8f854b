#pragma once

#include <config/train_config.h>

#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// What --strategy takes: our names and PyTorch's, in small letters.
std::vector<std::string> strategy_names();

// Settles what `strategy` says, and `shard_size`, the value of --shard-size. `strategy` is one of
// the names, or empty. `reshard_given`: --reshard-after-forward was given. Throws UsageError where
// options contradict each other.
void take_strategy(TrainConfig& config, const std::string& strategy,
                   std::optional<int64_t> shard_size, bool reshard_given);

}  // namespace fsdp
