#pragma once

namespace fsdp {

// What the files of a checkpoint hold. sharded: each rank's file has the ranges that it owns. full:
// one file has whole parameters, another one the optimizer's state.
enum class CheckpointFormat { sharded, full };

}  // namespace fsdp
