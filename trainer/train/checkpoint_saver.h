#pragma once

#include <comm/communicator.h>
#include <config/train_config.h>
#include <state/async_save.h>
#include <strategies/strategy.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace fsdp {

// Saves the checkpoints of a run in config.checkpoint.dir: every config.checkpoint.save_every
// steps, and after the last one. With config.checkpoint.async, all checkpoints but the last are
// written while the training continues. If the run saves no checkpoints, all functions do nothing.
//
// Every function is collective over `comm`, except is_due(), is_saving() and hold(). If a
// checkpoint cannot be saved, a collective function throws std::runtime_error on every rank; the
// text names the step that cannot be saved, and the step from which the run can continue. With
// config.checkpoint.async, a later call may throw this error.
class CheckpointSaver {
 public:
  using Json = nlohmann::ordered_json;
  // `say`: rank 0 calls it with each line to print about a save. `config` and `comm` must outlive
  // this object.
  CheckpointSaver(const TrainConfig& config, Communicator& comm,
                  std::function<void(const std::string& line)> say);

  bool is_due(int64_t steps) const;  // returns whether a save is due after `steps` steps
  // Returns whether an asynchronous save runs.
  bool is_saving() const { return saving_ != nullptr; }

  // Call it after each step. If a save is due after this step, saves the strategy. Otherwise
  // completes an asynchronous save whose files are all on the disk. `settings`: on rank 0, the
  // result of settings_of_run().
  void after_step(int64_t steps, const Json& settings, Strategy& strategy);

  // On rank 0, keeps the checkpoint of `step`, even if it is older than the config.checkpoint.keep
  // latest ones, until the next call of hold(), which releases it. Pass -1 to hold no checkpoint.
  void hold(int64_t step);

  // Saves the strategy as the checkpoint after `steps` steps. If an asynchronous save runs, waits
  // for it first.
  void save(int64_t steps, const Json& settings, Strategy& strategy);

 private:
  template <class Action>
  void report_failure(int64_t steps, const Action& action) const;
  void complete(bool waits);
  void finish(int64_t steps) const;
  void remove_old() const;
  void say(const std::string& line) const;

  const TrainConfig& config_;
  Communicator& comm_;
  std::function<void(const std::string&)> say_;
  int64_t held_{-1};                   // step of the checkpoint to keep, see hold(); -1: none
  int64_t saving_step_{};              // step of the asynchronous save that runs
  std::unique_ptr<AsyncSave> saving_;  // the asynchronous save that runs; null: none runs
};

}  // namespace fsdp
