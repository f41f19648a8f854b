#include <memory/live_bytes.h>
#include <train/step_meter.h>

#include <algorithm>
#include <utility>

namespace fsdp {

using Json = nlohmann::ordered_json;

class StepMeter::MeasuredDataset : public Dataset {
 public:
  MeasuredDataset(std::shared_ptr<const Dataset> dataset, StepMeter& meter)
      : dataset_(std::move(dataset)), meter_(meter) {}

  Batch batch(int64_t step, int64_t rows, int64_t seq) const override {
    const int64_t began = meter_.clock_->now();
    Batch batch = dataset_->batch(step, rows, seq);
    meter_.data_ += meter_.clock_->now() - began;
    return batch;
  }
  Batch held_out(int64_t rows, int64_t seq) const override { return dataset_->held_out(rows, seq); }

 private:
  std::shared_ptr<const Dataset> dataset_;
  StepMeter& meter_;
};

StepMeter::StepMeter(std::shared_ptr<Clock> clock) : clock_(std::move(clock)) {}

std::shared_ptr<const Dataset> StepMeter::measured(std::shared_ptr<const Dataset> dataset) {
  return std::make_shared<MeasuredDataset>(std::move(dataset), *this);
}

void StepMeter::begin_step() {
  traffic_ = {};
  waiting_ = data_ = optimizer_ = 0;
  began_ = clock_->now();
}

void StepMeter::begin_optimizer() {
  optimizer_began_ = own_time();
}

void StepMeter::end_optimizer() {
  optimizer_ += own_time() - optimizer_began_;
}

void StepMeter::end_step() {
  step_ = clock_->now() - began_;
  computing_ = step_ - waiting_ - data_ - optimizer_;
}

void StepMeter::issued(const Call& call, const at::Tensor& output) {
  Traffic& traffic = traffic_[static_cast<size_t>(call.operation)];
  ++traffic.calls;
  traffic.bytes += call.bytes;
}

void StepMeter::waits(const Call& call) {
  wait_began_ = clock_->now();
}

void StepMeter::waited(const Call& call, std::optional<std::pair<int64_t, int64_t>> moved) {
  const int64_t waited = clock_->now() - wait_began_;
  Traffic& traffic = traffic_[static_cast<size_t>(call.operation)];
  waiting_ += waited;
  traffic.waiting += waited;
  traffic.moving += moved ? moved->second - moved->first : waited;
}

Json StepMeter::json() const {
  const auto seconds = [](int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e9; };
  Json operations = Json::object();
  for (size_t i = 0; i < kOperations; ++i) {
    const Traffic& traffic = traffic_[i];
    if (traffic.calls == 0) continue;
    const bool moved = traffic.bytes > 0 && traffic.moving > 0;
    operations[to_string(static_cast<Operation>(i))] = {
        {"calls", traffic.calls},
        {"bytes", traffic.bytes},
        {"seconds_waiting", seconds(traffic.waiting)},
        {"bytes_per_s",
         moved ? Json(static_cast<double>(traffic.bytes) / seconds(traffic.moving)) : Json()}};
  }
  return {{"seconds",
           {{"step", seconds(step_)},
            {"computing", seconds(computing_)},
            {"waiting", seconds(waiting_)},
            {"data", seconds(data_)},
            {"optimizer", seconds(optimizer_)}}},
          {"operations", operations}};
}

Json live_bytes_now_and_peak() {
  const LiveBytes now = live_bytes::now();
  LiveBytes peak;
  for (const Phase phase : {Phase::forward, Phase::backward, Phase::optimizer}) {
    const LiveBytes of_phase = live_bytes::peak(phase);
    for (size_t cls = 0; cls < kMemoryClasses; ++cls)
      peak.by_class[cls] = std::max(peak.by_class[cls], of_phase.by_class[cls]);
    peak.total = std::max(peak.total, of_phase.total);
  }
  Json json;
  for (size_t cls = 0; cls < kMemoryClasses; ++cls) {
    json[to_string(static_cast<MemoryClass>(cls))] = {{"now", now.by_class[cls]},
                                                      {"peak", peak.by_class[cls]}};
  }
  json["total"] = {{"now", now.total}, {"peak", peak.total}};
  return json;
}

}  // namespace fsdp
