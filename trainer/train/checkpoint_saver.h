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
// steps, and after the last one. With config.checkpoint.async, all but the last are written while
// the training continues. If the run saves none, all functions do nothing.
//
// Every function is collective over `comm`, except is_due(), is_saving() and hold(). Each throws
// std::runtime_error on every rank if a checkpoint cannot be saved; the text names the step, and
// the step from which the run can continue. With config.checkpoint.async, the next call may throw
// it.
class CheckpointSaver {
 public:
  using Json = nlohmann::ordered_json;
  // Rank 0 passes to `say` the lines that report a save. The other arguments must outlive this
  // object.
  CheckpointSaver(const TrainConfig& config, Communicator& comm,
                  std::function<void(const std::string& line)> say);

  bool is_due(int64_t steps) const;  // returns whether the state after `steps` steps is saved
  bool is_saving() const { return saving_ != nullptr; }  // a checkpoint is being written

  // Call it after each step: saves the strategy if it is due, and completes the checkpoint that was
  // written meanwhile. `settings`: on rank 0, settings_of_run().
  void after_step(int64_t steps, const Json& settings, Strategy& strategy);

  // On rank 0: from now on keeps the checkpoint of `step`, although it may be old, and no longer
  // the one that the call before has named; -1: keeps no more than config.checkpoint.keep.
  void hold(int64_t step);

  // Saves the strategy after `steps` steps. First waits for the checkpoint that is being written.
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
  int64_t held_{-1};                   // the step of hold()
  int64_t saving_step_{};              // of saving_
  std::unique_ptr<AsyncSave> saving_;  // null: no checkpoint is being written
};

}  // namespace fsdp
