#pragma once

#include <config/train_config.h>
#include <optim/shard_layout.h>

#include <cstdint>

namespace fsdp {

// Returns the free bytes of the file system on which the folder of checkpoints lies or will lie;
// the largest int64 if they are unknown.
int64_t room_for_checkpoints(const TrainConfig& config);

// Returns the bytes of the tensors of a checkpoint.
int64_t checkpoint_bytes(const TrainConfig& config, const ShardLayout& layout);

// Throws std::runtime_error if the checkpoints of the run that exist at the same time need more
// than `room` bytes.
void require_room_for_checkpoints(const TrainConfig& config, const ShardLayout& layout,
                                  int64_t room);

}  // namespace fsdp
