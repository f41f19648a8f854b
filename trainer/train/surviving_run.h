#pragma once

#include <config/train_config.h>
#include <launch/rank_context.h>
#include <strategies/strategy.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

namespace fsdp {

// If this rank takes the place of another rank, changes `config` to the settings with which it
// continues, and returns read_run() of the other rank. Returns null if this rank starts the run.
nlohmann::ordered_json take_over_settings(const RankContext& context, TrainConfig& config);

// The part of a rank in continuing the run after a host was lost (hosts/handover.h). A rank
// that fails because of the loss saves its state in memory, and another rank takes its place. If
// the failed rank cannot know whether other ranks have made the current update, it saves two
// states: before the update and after it. If no other rank may take this rank's place, all
// functions do nothing.
class SurvivingRun {
 public:
  using Json = nlohmann::ordered_json;

  // `comm`: connects all ranks. `handed`: read_run() of the rank whose place this rank takes; null
  // if this rank starts the run. `first_step`: the number of steps made before.
  SurvivingRun(const RankContext& context, Communicator& comm, const Json& handed,
               int64_t first_step);

  bool takes_over() const { return !handed_.is_null(); }
  // Fills the strategy with the tensors that the former rank has saved. Returns the progress that
  // the former rank passed to save().
  const Json& take_over(Strategy& strategy);

  // The work that remains after the last step that was made.
  struct Remaining {
    bool evaluation;  // to evaluate and log the step
    bool save;        // to save a checkpoint of it
  };
  // Collective. Returns what remains of the last step that was made, equal on all ranks. `save`:
  // whether a checkpoint of that step is due and does not exist.
  Remaining remaining_after_last_step(bool save);

  // Call these four functions in each step, in this order. `steps`: the number of steps so far,
  // this one included.
  void before_step(Strategy& strategy);
  // Collective. `update` makes the update, calls after_update(), and calls no collective. When
  // before_update() returns, every rank has all inputs of its update, so if one rank updates, all
  // can.
  void before_update(std::function<void()> update);
  void after_update(int64_t steps);
  void after_step(int64_t steps);  // call it when the step was evaluated and logged, and its save,
                                   // if it is due, has ended or has begun in the background

  // Collective. Call it after the last step. When it returns, every rank has finished training, so
  // a rank that ends does not make another rank fail.
  void end();
  // Call it after a failure. If this rank failed because another rank was lost, saves the state
  // before the current step and, if this rank has all inputs of the update, also the state after
  // it. `progress` returns the state of the run except its tensors. Throws std::system_error if
  // there is not enough memory for a state.
  void save(const std::function<Json()>& progress);

 private:
  const RankContext& context_;
  Communicator& comm_;
  const Json& handed_;
  std::vector<StateRange> ranges_;        // of the strategy; empty until the first step begins
  std::function<void()> pending_update_;  // an update whose inputs this rank has; null: none
  // The numbers of steps whose update was made, and of steps for which after_step() was called.
  int64_t steps_done_, steps_finished_;
};

}  // namespace fsdp
