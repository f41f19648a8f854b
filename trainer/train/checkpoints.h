#pragma once

#include <state/checkpoint.h>
#include <strategies/strategy.h>

#include <string>

namespace fsdp {

// Returns the settings that decide which numbers a run computes. How the ranks divide the work is
// not among them, because a checkpoint can be resumed with any division. If the run trains on text,
// reads the text to hash it.
nlohmann::ordered_json settings_of_run(const TrainConfig& config);

// Makes the run of `config` continue from `checkpoint`: sets the folder to load, the first step and
// the loss scaler in `config`. Throws what LossScaler and number_in_run() throw.
void go_on_from(const Checkpoint& checkpoint, TrainConfig& config);

// Returns a warning if the run's --steps differ from `saved_steps`, the --steps of the run that
// saved the checkpoint, and the learning rate depends on --steps; else "".
std::string change_of_rate(const TrainConfig& config, int64_t saved_steps);

// Returns the first setting that differs between the saved run and this run, in words; "" if none
// differs. Does not compare `parts` (the number of microbatches) and `steps`, which may differ, nor
// `loss_scaler`, which changes during a run.
std::string difference_of_runs(const nlohmann::ordered_json& saved,
                               const nlohmann::ordered_json& own);

// Collective over `comm`. If config.model.init is set, reads the parameters from this Hugging Face
// folder. Returns a line that reports this, or "". Throws what load_hugging_face() throws.
std::string load_init(const TrainConfig& config, Strategy& strategy, Communicator& comm);

// Collective over `comm`. If config.checkpoint.resume is set, loads this checkpoint into the
// strategy. Returns a line that reports this, or "". Throws what load_checkpoint() throws.
std::string resume(const TrainConfig& config, Strategy& strategy, Communicator& comm);

}  // namespace fsdp
