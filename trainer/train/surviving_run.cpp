#include <comm/collective_error.h>
#include <hosts/handover.h>
#include <train/checkpoints.h>
#include <train/fewer_ranks.h>
#include <train/rank_metrics.h>
#include <train/rank_state.h>
#include <train/surviving_run.h>

#include <utility>

namespace fsdp {

nlohmann::ordered_json take_over_settings(const RankContext& context, TrainConfig& config) {
  if (!context.handover || !context.handover->steps()) return nullptr;
  auto run = read_run(context.handover->file());
  config = with_ranks(config, context.world_size).value();
  config.ranks.comm.fault.reset();
  go_on_from({.folder = config.checkpoint.resume, .step = *context.handover->steps(), .run = run},
             config);
  return run;
}

SurvivingRun::SurvivingRun(const RankContext& context, Communicator& comm, const Json& handed,
                           int64_t first_step)
    : context_(context),
      comm_(comm),
      handed_(handed),
      steps_done_(first_step),
      steps_finished_(first_step) {}

const SurvivingRun::Json& SurvivingRun::take_over(Strategy& strategy) {
  ranges_ = strategy.state().ranges;
  read_ranges(context_.handover->file(), ranges_);
  context_.handover->free();
  steps_finished_ = handed_["followed_up"];
  return handed_;
}

SurvivingRun::Remaining SurvivingRun::remaining_after_last_step(bool save) {
  // The failure may have stopped the ranks at different places of a step, so different work may
  // remain for them. All ranks do the work that remains for rank 0.
  constexpr int64_t kEvaluation = 1, kSave = 2;
  const int64_t own = (steps_finished_ == steps_done_ ? 0 : kEvaluation) | (save ? kSave : 0);
  const int64_t remaining = gather_from_ranks(comm_, own)[0];
  return {(remaining & kEvaluation) != 0, (remaining & kSave) != 0};
}

void SurvivingRun::before_step(Strategy& strategy) {
  if (context_.handover) ranges_ = strategy.state().ranges;
}

void SurvivingRun::before_update(std::function<void()> update) {
  if (!context_.handover) return;
  pending_update_ = std::move(update);
  comm_.barrier(kMetrics).wait();
}

void SurvivingRun::after_update(int64_t steps) {
  pending_update_ = nullptr;
  steps_done_ = steps;
}

void SurvivingRun::after_step(int64_t steps) {
  steps_finished_ = steps;
}

void SurvivingRun::end() {
  if (context_.handover) comm_.barrier(kMetrics).wait();
}

void SurvivingRun::save(const std::function<Json()>& progress) {
  if (!context_.handover || !has_lost_a_rank(context_)) return;
  if (ranges_.empty()) return;  // no step has begun, so there is no state to save
  const auto write = [&](int file) {
    Json run = progress();
    run["followed_up"] = steps_finished_;
    write_state(file, run, ranges_);
  };
  context_.handover->save(steps_done_, write);
  if (!pending_update_) return;
  try {
    const auto update = pending_update_;  // a copy, because the update resets pending_update_
    update();
  } catch (const CollectiveError&) {
    // A rank still reads the values that the update would change. In this case no rank has made the
    // update.
    return;
  }
  context_.handover->save(steps_done_, write);
}

}  // namespace fsdp
