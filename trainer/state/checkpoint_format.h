#pragma once

namespace fsdp {

// The content of a checkpoint's files. sharded: each rank's file has the ranges that the rank owns.
// full: one file has whole parameters, another one the optimizer's state.
enum class CheckpointFormat { sharded, full };

}  // namespace fsdp
