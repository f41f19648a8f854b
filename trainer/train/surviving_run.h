#pragma once

#include <config/train_config.h>
#include <launch/rank_context.h>
#include <strategies/strategy.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

namespace fsdp {

// If this rank takes the place of another one, makes `config` the settings with which it continues,
// and returns read_run() of the other rank. Returns null if this rank begins.
nlohmann::ordered_json take_over_settings(const RankContext& context, TrainConfig& config);

// A rank's part in a run that continues after a host was lost (hosts/handover.h). A rank that fails
// because of the loss leaves its state in memory, and another rank takes its place. Two states, if
// it can't know whether others have made the update under way: before the update, and after it. If
// no other rank may take this one's place, all functions do nothing.
class SurvivingRun {
 public:
  using Json = nlohmann::ordered_json;

  // `comm`: of all ranks. `handed`: read_run() of the rank whose place this one takes; null if this
  // rank begins. `first_step`: the steps that the run has behind it.
  SurvivingRun(const RankContext& context, Communicator& comm, const Json& handed,
               int64_t first_step);

  bool takes_over() const { return !handed_.is_null(); }
  // Fills the strategy with the tensors that the former rank has left. Returns its progress, what
  // it gave to leave().
  const Json& take_over(Strategy& strategy);

  // What a rank that takes over does after the last step that was made.
  enum class Remaining { everything, everything_but_saving, nothing };
  // Returns what remains, the same on all ranks. `saved`: a checkpoint of that step is there. All
  // ranks call it together.
  Remaining remaining_after_last_step(bool saved);

  // In each step, in this order:
  void before_step(Strategy& strategy);
  // `update` makes the update, calls after_update(), and calls no collective. When before_update()
  // returns, all ranks have what their updates need. All ranks call it together.
  void before_update(std::function<void()> update);
  void after_update(int64_t steps);
  void after_step(int64_t steps);  // the step was evaluated, logged and saved

  // After the last step: returns when all ranks are done, so that a rank may end without failing
  // another. All ranks call it together.
  void end();
  // After a failure: leaves the states if this rank has lost another one. `progress` returns what
  // the run has come to beside the tensors. Throws std::system_error if there is no memory for a
  // state.
  void save(const std::function<Json()>& progress);

 private:
  const RankContext& context_;
  Communicator& comm_;
  const Json& handed_;
  std::vector<StateRange> ranges_;        // of the strategy; empty until the first step begins
  std::function<void()> pending_update_;  // for which this rank has all; null: none
  int64_t steps_done_, steps_finished_;   // updated; and evaluated, logged and saved
};

}  // namespace fsdp
