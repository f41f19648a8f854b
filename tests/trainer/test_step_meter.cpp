#include <gtest/gtest.h>
#include <testing/counted_clock.h>
#include <train/step_meter.h>

#include <common/in_a_process.h>

namespace fsdp {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// A dataset whose batch() takes three seconds of the simulated time of `clock`.
class SlowDataset : public Dataset {
 public:
  explicit SlowDataset(std::shared_ptr<CountedClock> clock) : clock_(std::move(clock)) {}
  Batch batch(int64_t, int64_t, int64_t) const override {
    clock_->pass(3 * kSecond);
    return {};
  }
  Batch held_out(int64_t, int64_t) const override { return {}; }

 private:
  std::shared_ptr<CountedClock> clock_;
};

Call call_of(Operation operation, int64_t bytes) {
  Call call;
  call.operation = operation;
  call.bytes = bytes;
  return call;
}

TEST(StepMeter, the_step_meter_separates_the_times_of_computing_waiting_data_and_optimizer) {
  in_a_process([] {
    const auto clock = std::make_shared<CountedClock>();
    StepMeter meter(clock);
    const auto data = meter.measured(std::make_shared<SlowDataset>(clock));
    const auto wait = [&](Operation operation, int64_t seconds) {
      const Call call = call_of(operation, 100);
      call_observers::issued(call, {});
      call_observers::waits(call);
      clock->pass(seconds * kSecond);
      call_observers::waited(call, std::nullopt);
    };
    // The times of the second step must not include those of the first.
    for (int step = 0; step < 2; ++step) {
      meter.begin_step();
      data->batch(0, 1, 1);
      wait(Operation::all_gather, 4);
      clock->pass(10 * kSecond);
      wait(Operation::all_gather, 1);
      meter.begin_optimizer();
      clock->pass(2 * kSecond);
      wait(Operation::all_reduce, 5);
      meter.end_optimizer();
      meter.end_step();
      clock->pass(50 * kSecond);
    }
    const auto expected = nlohmann::ordered_json::parse(R"({
      "seconds": {"step": 25.0, "computing": 10.0, "waiting": 10.0, "data": 3.0, "optimizer": 2.0},
      "operations": {
        "all_gather": {"calls": 2, "bytes": 200, "seconds_waiting": 5.0, "bytes_per_s": 40.0},
        "all_reduce": {"calls": 1, "bytes": 100, "seconds_waiting": 5.0, "bytes_per_s": 20.0}}})");
    EXPECT_EQ(meter.json(), expected) << meter.json();
  });
}

TEST(StepMeter, the_step_meter_computes_bandwidth_from_the_transfer_time_if_it_is_known) {
  in_a_process([] {
    const auto clock = std::make_shared<CountedClock>();
    StepMeter meter(clock);
    meter.begin_step();
    const Call call = call_of(Operation::reduce_scatter, 600);
    call_observers::issued(call, {});
    call_observers::waits(call);
    clock->pass(kSecond);
    call_observers::waited(call, std::pair<int64_t, int64_t>(0, 3 * kSecond));
    const Call nothing = call_of(Operation::barrier, 0);
    call_observers::issued(nothing, {});
    meter.end_step();
    const auto operations = meter.json()["operations"];
    EXPECT_EQ(operations["reduce_scatter"]["bytes_per_s"], 200.0);
    EXPECT_EQ(operations["reduce_scatter"]["seconds_waiting"], 1.0);
    EXPECT_TRUE(operations["barrier"]["bytes_per_s"].is_null());
  });
}

}  // namespace
}  // namespace fsdp
