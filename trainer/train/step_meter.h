#pragma once

#include <comm/call_observer.h>
#include <comm/clock.h>
#include <data/dataset.h>

#include <array>
#include <memory>
#include <nlohmann/json.hpp>

namespace fsdp {

// Measures how long the parts of a step take on this rank, and the bytes of its collectives.
// docs/telemetry.md explains each number.
class StepMeter final : public CallObserver {
 public:
  // Observes the collectives of this process while this object lives.
  explicit StepMeter(std::shared_ptr<Clock> clock);

  void begin_step();
  void begin_optimizer();
  void end_optimizer();
  void end_step();

  // Returns `dataset` with batches whose time counts as "data".
  std::shared_ptr<const Dataset> measured(std::shared_ptr<const Dataset> dataset);

  // Returns the numbers of the last step that has ended: {"seconds": {...}, "operations": {...}}.
  nlohmann::ordered_json json() const;

  void issued(const Call& call, const at::Tensor& output) override;
  void waits(const Call& call) override;
  void waited(const Call& call, std::optional<std::pair<int64_t, int64_t>> moved) override;

 private:
  class MeasuredDataset;
  struct Traffic {
    int64_t calls{}, bytes{};
    int64_t waiting{}, moving{};  // [ns]
  };
  int64_t own_time() const { return clock_->now() - waiting_; }  // [ns] stops while the rank waits

  std::shared_ptr<Clock> clock_;
  // [ns] in the current step
  int64_t began_{}, optimizer_began_{}, wait_began_{};
  int64_t step_{}, computing_{}, waiting_{}, data_{}, optimizer_{};
  std::array<Traffic, kOperations> traffic_{};  // by operation
};

// Returns, for each class and for all classes together, the bytes alive now and the largest number
// that was alive in a step so far.
nlohmann::ordered_json live_bytes_now_and_peak();

}  // namespace fsdp
