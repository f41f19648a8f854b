#pragma once

#include <reproduce/option_text.h>
#include <reproduce/train_result.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace fsdp {

// A run of the train program that takes so long that it may be interrupted.
struct LongRun {
  std::string name;
  TrainOptions options;  // without those of files
  int64_t steps{};
  int64_t state_bytes{};  // of parameters and optimizer: what a checkpoint takes
};

struct LongResult {
  TrainOptions options;
  TrainResult result;  // its seconds leave out the time in which it did not run
  // [bytes] The most that all processes together have held, and had swapped out, sampled each
  // second: anonymous and shared memory.
  int64_t peak{}, swapped{};
};

// Runs `program` with its files in FOLDER/NAME.
// - It saves a checkpoint after every third step. If the run was interrupted, however it ended, the
//   next call goes on from the latest checkpoint.
// - If the run has ended well in that folder, its results are read and nothing is run.
// - Steps, memory and the time that is left are shown on stderr.
// Throws std::runtime_error if the run fails, if FOLDER/NAME belongs to another run or is in use,
// or if the disk has no room for two checkpoints and the optimizer's state.
LongResult run_or_go_on(const std::filesystem::path& program, const std::filesystem::path& folder,
                        const LongRun& run);

nlohmann::ordered_json to_json(const LongResult& all);

}  // namespace fsdp
