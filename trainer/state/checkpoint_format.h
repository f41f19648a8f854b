#pragma once

namespace fsdp {

// How the files of a checkpoint divide the state. sharded: each rank's file has the ranges that the
// rank owns. full: one file has the whole parameters, another one the whole optimizer state.
enum class CheckpointFormat { sharded, full };

}  // namespace fsdp
