#pragma once

#include <reproduce/option_text.h>
#include <reproduce/train_result.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace fsdp {

// A run of the train program that can be interrupted and continued.
struct LongRun {
  std::string name;
  TrainOptions options;  // without options that name files
  int64_t steps{};
  int64_t state_bytes{};     // size of a checkpoint: parameters and optimizer state
  int64_t receipt_sample{};  // of the run's receipt (see Sampling); 0: it leaves none
};

struct LongResult {
  TrainOptions options;
  TrainResult result;  // its seconds do not count the time between interruption and restart
  // [bytes] The most anonymous and shared memory that all processes together held, and the most
  // that they had swapped out, sampled each second.
  int64_t peak{}, swapped{};
  std::filesystem::path receipt{};  // its file; empty: there is none
};

// Runs `program` with its files in FOLDER/NAME.
// - If that folder has the results of a finished run, reads them and runs nothing.
// - The run saves a checkpoint after every third step. If an earlier run was interrupted or failed,
//   this call continues from its latest checkpoint, and the receipt has only the steps after it.
// - Prints steps, memory and the remaining time on stderr.
// Throws std::runtime_error if the run fails, if FOLDER/NAME belongs to another run or is in use,
// or if the disk has no room for two checkpoints and the optimizer's state.
LongResult run_or_go_on(const std::filesystem::path& program, const std::filesystem::path& folder,
                        const LongRun& run);

nlohmann::ordered_json to_json(const LongResult& all);

}  // namespace fsdp
