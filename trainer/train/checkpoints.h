#pragma once

#include <state/checkpoint.h>
#include <strategies/strategy.h>

#include <string>

namespace fsdp {

// Returns the settings that decide which numbers a run computes. How ranks share the work is not
// one of them: a checkpoint can be resumed with any sharing. Reads the text for its hash, if the
// run trains on text.
nlohmann::ordered_json settings_of_run(const TrainConfig& config);

// Makes the run of `config` continue from `checkpoint`: sets its step and its loss scaler. Throws
// what LossScaler and number_in_run() throw.
void go_on_from(const Checkpoint& checkpoint, TrainConfig& config);

// Returns a warning if the run continues with other --steps than the `saved_steps` of the
// checkpoint and its learning rate depends on them; else "".
std::string change_of_rate(const TrainConfig& config, int64_t saved_steps);

// Returns the first setting that differs between a saved run and this one, in words; "" if they are
// equal. Does not compare `parts` (the number of microbatches) and `steps`, which may differ, nor
// `loss_scaler`, which changes during a run.
std::string difference_of_runs(const nlohmann::ordered_json& saved,
                               const nlohmann::ordered_json& own);

// Collective over `comm`. Fills the parameters from config.model.init, if it is set. Returns a line
// that reports it, or "". Throws what load_hugging_face() throws.
std::string load_init(const TrainConfig& config, Strategy& strategy, Communicator& comm);

// Collective over `comm`. Fills the strategy from config.checkpoint.resume, if it is set. Returns a
// line that reports it, or "". Throws what load_checkpoint() throws.
std::string resume(const TrainConfig& config, Strategy& strategy, Communicator& comm);

}  // namespace fsdp
