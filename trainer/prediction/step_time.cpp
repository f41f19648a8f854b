#include <prediction/step_time.h>

#include <algorithm>
#include <string>

namespace fsdp {
namespace {

class TimeOfAStep {
 public:
  TimeOfAStep(const Schedule& schedule, const CallTime& call_time)
      : call_time_(call_time), spans_(schedule.actions.size()) {
    for (; at_ < schedule.actions.size(); ++at_) {
      spans_[at_] = {time_.total(), time_.total()};
      std::visit(*this, schedule.actions[at_]);
    }
  }

  const StepTime& time() const { return time_; }
  const std::vector<Span>& spans() const { return spans_; }

  void operator()(const Schedule::Compute& part) {
    time_.computing += part.time;
    spans_[at_].end = time_.total();
  }
  void operator()(const Schedule::Issue& call) {
    const int64_t begin = std::max(link_free_, time_.total());
    link_free_ = begin + call_time_(call);
    spans_[at_] = {begin, link_free_};
  }
  void operator()(const Schedule::Wait& wait) {
    time_.waiting += std::max<int64_t>(spans_[wait.action].end - time_.total(), 0);
    spans_[at_].end = time_.total();
  }
  void operator()(const Schedule::Enter&) {}
  void operator()(const Schedule::Allocate&) {}

 private:
  const CallTime& call_time_;
  std::vector<Span> spans_;  // for each action of the schedule: when it begins and ends
  size_t at_{};              // index of the schedule's action that is being visited
  StepTime time_;
  int64_t link_free_{};  // [ns] when the link has finished all calls issued so far
};

}  // namespace

CallTime of_units(const CallTime& call_time) {
  return
      [call_time](const Schedule::Issue& call) { return call.label.empty() ? call_time(call) : 0; };
}

CallTime over(const Link& link) {
  return [link](const Schedule::Issue& call) {
    return link.time(call.operation, call.bytes_received(), call.ranks);
  };
}

StepTime predict_step_time(const Schedule& schedule, const CallTime& call_time) {
  return TimeOfAStep(schedule, call_time).time();
}

std::vector<Span> predict_spans(const Schedule& schedule, const CallTime& call_time) {
  return TimeOfAStep(schedule, call_time).spans();
}

StepTime predict_step_time(TrainConfig config, const std::vector<UnitTime>& times,
                           const CallTime& call_time) {
  ShardLayout layout;
  for (size_t i = 0; i < times.size(); ++i) {
    const std::string name = "unit " + std::to_string(i);
    layout.units.push_back({name, 0, /*root=*/i == 0, /*trainable=*/true});
    layout.parameters.push_back({name + ".weight", i, 0, 0, /*trainable=*/true});
  }
  config.ranks.mode = Mode::fsdp;
  config.training.steps = 1;
  const ModelTraces traces = chain_of(config, layout, times);
  return predict_step_time(schedule(config, layout, 0, /*first=*/false, traces),
                           of_units(call_time));
}

}  // namespace fsdp
