#pragma once

#include <config/train_config.h>
#include <optim/shard_layout.h>

#include <cstdint>

namespace fsdp {

// Returns the free bytes of the file system on which the folder of checkpoints lies or will be
// made; the largest int64 if the number is unknown.
int64_t room_for_checkpoints(const TrainConfig& config);

// Returns the bytes of the tensors in one checkpoint of the run.
int64_t checkpoint_bytes(const TrainConfig& config, const ShardLayout& layout);

// Throws std::runtime_error if the checkpoints that exist at the same time during the run need more
// than `room` bytes.
void require_room_for_checkpoints(const TrainConfig& config, const ShardLayout& layout,
                                  int64_t room);

}  // namespace fsdp
