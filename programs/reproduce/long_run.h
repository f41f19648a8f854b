#pragma once

#include <reproduce/train_runs.h>

#include <filesystem>
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
  TrainResult result;  // time in which it did not run is left out of its seconds
  // [bytes] The most that all processes together have held, and had swapped out, sampled each
  // second: anonymous and shared memory.
  int64_t peak{}, swapped{};
};

// Runs `program` with its files in FOLDER/NAME, and saves a checkpoint every third step. Goes on
// from the latest one if the run was interrupted there before, however it ended. If it has ended
// well there, only reads its results. Shows steps, memory and the time that is left on stderr.
// Throws std::runtime_error if the run fails, if FOLDER/NAME is another run's or is in use, or if
// the disk has no room for two checkpoints and the optimizer's state.
LongResult run_or_go_on(const std::filesystem::path& program, const std::filesystem::path& folder,
                        const LongRun& run);

nlohmann::ordered_json to_json(const LongResult& all);

}  // namespace fsdp
