#pragma once

#include <reproduce/option_text.h>
#include <reproduce/train_result.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace fsdp {

// A training run of the train program that can be interrupted and later continued.
struct LongRun {
  std::string name;
  TrainOptions options;  // options of train, without those that name files
  int64_t steps{};
  int64_t state_bytes{};  // [bytes] size of a checkpoint: parameters and optimizer state
  // The value of train --receipt-sample: about one in this many events is in the run's receipt. 0:
  // the run writes no receipt.
  int64_t receipt_sample{};
};

struct LongResult {
  TrainOptions options;
  // The results of the run. result.seconds leaves out the time between an interruption of the run
  // and its restart.
  TrainResult result;
  // [bytes] `peak`: the most anonymous and shared memory that all processes of the run held
  // together. `swapped`: the most that they had swapped out. Both were sampled once a second.
  int64_t peak{}, swapped{};
  std::filesystem::path receipt{};  // path of the run's receipt; empty: there is no receipt
};

// Runs `program`, the train program, with its files in FOLDER/NAME.
// - If FOLDER/NAME has the results of a finished run, reads them and runs nothing.
// - The run saves a checkpoint after every third step. If an earlier run was interrupted or failed,
//   this call continues from its latest checkpoint, and the receipt has only the steps after that
//   checkpoint.
// - While it runs, prints steps, memory and the remaining time on stderr.
// Throws std::runtime_error if the run fails, if FOLDER/NAME belongs to a run with other options or
// is in use, or if the disk has no room for two checkpoints and the optimizer's state.
LongResult run_or_go_on(const std::filesystem::path& program, const std::filesystem::path& folder,
                        const LongRun& run);

nlohmann::ordered_json to_json(const LongResult& all);

}  // namespace fsdp
