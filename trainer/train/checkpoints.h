#pragma once

#include <state/checkpoint.h>
#include <strategies/strategy.h>

#include <string>

namespace fsdp {

// The settings that decide which numbers a run computes. Not among them is how ranks share out the
// work: a checkpoint goes on with any of that. `text`: read for its hash, unless it is published.
nlohmann::ordered_json settings_of_run(const TrainConfig& config);

// Makes the run of `config` go on from `checkpoint`: with its step, and with its loss scaler.
// Throws what LossScaler and number_in_run() throw.
void go_on_from(const Checkpoint& checkpoint, TrainConfig& config);

// What a run says that goes on with other --steps than the `saved_steps` of before, if its learning
// rate depends on them; else nothing.
std::string change_of_rate(const TrainConfig& config, int64_t saved_steps);

// What differs between the settings of a saved run and those of this one, in words: the first
// setting; empty if they are equal. `parts` and `steps` are not compared, and
// the loss scale is not, which changes as a run goes on.
std::string difference_of_runs(const nlohmann::ordered_json& saved,
                               const nlohmann::ordered_json& own);

// Fills the parameters from config.model.init, if the run begins with those of a file. Returns a
// line about it, or nothing. All ranks of `comm` call it together. Throws what load_hugging_face()
// throws.
std::string load_init(const TrainConfig& config, Strategy& strategy, Communicator& comm);

// Fills the strategy from config.checkpoint.resume, if a run is resumed. Returns a line about it,
// or nothing. All ranks of `comm` call it together. Throws what load_checkpoint() throws.
std::string resume(const TrainConfig& config, Strategy& strategy, Communicator& comm);

// Saves the strategy after so many steps, if config says so: every config.checkpoint.save_every
// steps, and after the last one. Rank 0 saves its `settings`, which are settings_of_run(). Returns
// a line about it, or nothing. All ranks of `comm` call it together. Throws what save_checkpoint()
// throws.
std::string save_if_due(const TrainConfig& config, const nlohmann::ordered_json& settings,
                        int64_t steps, Strategy& strategy, Communicator& comm);

}  // namespace fsdp
