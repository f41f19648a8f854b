#pragma once

#include <config/train_config.h>
#include <launch/rank_context.h>
#include <strategies/strategy.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

namespace fsdp {

// If this rank takes the place of a failed rank, changes `config` to the settings with which the
// run continues, and returns what read_run() reads of the failed rank. Otherwise this rank starts
// the run, and the function returns null.
nlohmann::ordered_json take_over_settings(const RankContext& context, TrainConfig& config);

// What a rank does so that the run can continue after a host was lost (hosts/handover.h). A rank
// that fails because of the loss saves its state in memory, and a new rank takes its place. If the
// failed rank cannot know whether other ranks have made the current update, it saves two states:
// from before the update and from after it. If no new rank may take this rank's place, all
// functions do nothing.
class SurvivingRun {
 public:
  using Json = nlohmann::ordered_json;

  // `comm`: connects all ranks. `handed`: what take_over_settings() returned: the state that a
  // failed rank left, or null if this rank starts the run. `first_step`: the number of steps that
  // were made before.
  SurvivingRun(const RankContext& context, Communicator& comm, const Json& handed,
               int64_t first_step);

  bool takes_over() const { return !handed_.is_null(); }
  // Call it if takes_over() is true. Fills the strategy with the tensors that the failed rank has
  // saved. Returns the progress that the failed rank passed to save().
  const Json& take_over(Strategy& strategy);

  // The work that remains to be done for the last step whose update was made before the failure.
  struct Remaining {
    bool evaluation;  // whether to evaluate and log the step
    bool save;        // whether to save a checkpoint of the step
  };
  // Collective. Returns what remains to be done for the last step whose update was made. The result
  // is equal on all ranks. `save`: whether a checkpoint of this step is due and does not exist.
  Remaining remaining_after_last_step(bool save);

  // In each step, call before_step(), before_update(), after_update() and after_step(), in this
  // order. `steps`: the number of steps so far, this step included.
  void before_step(Strategy& strategy);
  // Collective. `update` makes the update of this rank, calls after_update(), and calls no
  // collective. When before_update() returns, every rank has all inputs of its update. So if one
  // rank makes the update, all ranks can make it.
  void before_update(std::function<void()> update);
  void after_update(int64_t steps);
  // Call after_step() when the step has been evaluated and logged. If a save is due, call it when
  // the save has ended or runs in the background.
  void after_step(int64_t steps);

  // Collective. Call it after the last step. When end() returns, every rank has finished training,
  // so a rank that ends cannot make another rank fail.
  void end();
  // Call it after a failure. If this rank failed because another rank was lost, saves the state
  // before the current update and, if this rank has all inputs of the update, also the state after
  // the update. `progress` returns the state of the run except its tensors. Throws
  // std::system_error if there is not enough memory for a state.
  void save(const std::function<Json()>& progress);

 private:
  const RankContext& context_;
  Communicator& comm_;
  const Json& handed_;
  std::vector<StateRange> ranges_;  // ranges of the strategy's state; empty before the first step
  // The function that makes the update of this step; null before and after the update.
  std::function<void()> pending_update_;
  // steps_done_: the number of steps whose update was made. steps_finished_: the number of steps
  // for which after_step() was called.
  int64_t steps_done_, steps_finished_;
};

}  // namespace fsdp
