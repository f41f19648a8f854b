#pragma once

#include <comm/call_observer.h>
#include <comm/clock.h>
#include <data/dataset.h>

#include <array>
#include <memory>
#include <nlohmann/json.hpp>

namespace fsdp {

// Measures how long the parts of a step take on this rank, and counts the bytes of the step's
// collectives. docs/telemetry.md explains each number.
class StepMeter final : public CallObserver {
 public:
  // While this object lives, it observes the collectives of this process.
  explicit StepMeter(std::shared_ptr<Clock> clock);

  void begin_step();
  void begin_optimizer();
  void end_optimizer();
  void end_step();

  // Returns a Dataset with the batches of `dataset`. The time that batch() takes counts as "data".
  std::shared_ptr<const Dataset> measured(std::shared_ptr<const Dataset> dataset);

  // Returns the numbers of the last step for which end_step() was called: {"seconds": {...},
  // "operations": {...}}.
  nlohmann::ordered_json json() const;

  void issued(const Call& call, const at::Tensor& output) override;
  void waits(const Call& call) override;
  void waited(const Call& call, std::optional<std::pair<int64_t, int64_t>> moved) override;

 private:
  class MeasuredDataset;
  struct Traffic {
    int64_t calls{}, bytes{};
    // [ns] for which the rank waited for the calls, and for which the calls' bytes moved.
    int64_t waiting{}, moving{};
  };
  // [ns] The clock's time minus the time that this rank has waited in the current step.
  int64_t own_time() const { return clock_->now() - waiting_; }

  std::shared_ptr<Clock> clock_;
  // [ns] Times of the current step: when its parts began, and how long they took.
  int64_t began_{}, optimizer_began_{}, wait_began_{};
  int64_t step_{}, computing_{}, waiting_{}, data_{}, optimizer_{};
  // For each operation, such as all-gather: number, bytes and times of its calls in this step.
  std::array<Traffic, kOperations> traffic_{};
};

// Returns, for each memory class and for all classes together, the bytes that are alive now and the
// largest number of bytes that were alive at one time in a step so far.
nlohmann::ordered_json live_bytes_now_and_peak();

}  // namespace fsdp
