#include <prediction/schedule.h>
#include <prediction/step_time.h>

#include <algorithm>

namespace fsdp {
namespace {

// What the rank's clock shows as a step goes on. [ns]
class TimeOfAStep {
 public:
  TimeOfAStep(const Schedule& schedule, const std::vector<UnitTime>& units)
      : units_(units), done_(schedule.actions.size()) {
    for (; at_ < schedule.actions.size(); ++at_)
      std::visit(*this, schedule.actions[at_]);
  }

  int64_t now() const { return now_; }

  void operator()(const Schedule::Compute& part) {
    const UnitTime& unit = units_[part.unit];
    now_ += part.phase == Phase::forward ? unit.forward : unit.backward;
  }
  void operator()(const Schedule::Issue& call) {
    if (!call.unit) return;  // the loss, of which the model's forward and backward know nothing
    const UnitTime& unit = units_[*call.unit];
    const bool gathers = call.operation == Operation::all_gather;
    link_free_ = std::max(link_free_, now_) + (gathers ? unit.all_gather : unit.reduce_scatter);
    done_[at_] = link_free_;
  }
  void operator()(const Schedule::Wait& wait) { now_ = std::max(now_, done_[wait.action]); }
  void operator()(const Schedule::Enter&) {}
  void operator()(const Schedule::Allocate&) {}

 private:
  const std::vector<UnitTime>& units_;
  std::vector<int64_t> done_;  // by action: when the link has moved what was issued there
  size_t at_{};                // the action
  int64_t now_{};              // of the rank
  int64_t link_free_{};        // when the link has moved all that was issued
};

}  // namespace

int64_t predict_step_time(const std::vector<UnitTime>& units, int limit, bool reshard_after_forward,
                          int turns, std::optional<int> backward_limit) {
  ShardLayout layout;  // the sizes do not matter: the times are given
  for (const UnitTime& unit : units)
    layout.units.push_back({"", 0, /*root=*/layout.units.empty(), unit.reduce_scatter > 0});
  TrainConfig config;
  config.mode = "fsdp";
  config.steps = 1;
  config.parts = turns;  // of one rank
  config.limit = limit;
  config.backward_limit = backward_limit;
  config.reshard_after_forward = reshard_after_forward;
  return TimeOfAStep(schedule(config, layout), units).now();
}

}  // namespace fsdp
