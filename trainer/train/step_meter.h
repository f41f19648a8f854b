#pragma once

#include <comm/call_observer.h>
#include <comm/clock.h>
#include <data/dataset.h>

#include <array>
#include <memory>
#include <nlohmann/json.hpp>

namespace fsdp {

// Where the time of a step goes on this rank, and what its collectives carried. docs/telemetry.md
// says what each number means.
class StepMeter final : public CallObserver {
 public:
  // Observes the collectives of this process as long as it lives.
  explicit StepMeter(std::shared_ptr<Clock> clock);

  void begin_step();
  void begin_optimizer();
  void end_optimizer();
  void end_step();

  // The same dataset. The time that its batches take counts as data.
  std::shared_ptr<const Dataset> measured(std::shared_ptr<const Dataset> dataset);

  // Of the step that has ended: {"seconds": {...}, "operations": {...}}.
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
  int64_t own_time() const { return clock_->now() - waiting_; }  // [ns] stands while the rank waits

  std::shared_ptr<Clock> clock_;
  // All of the step. [ns]
  int64_t began_{}, optimizer_began_{}, wait_began_{};
  int64_t step_{}, computing_{}, waiting_{}, data_{}, optimizer_{};
  std::array<Traffic, kOperations> traffic_{};  // by operation
};

// By class, and for all together: the bytes that are alive now, and the most so far in a step.
nlohmann::ordered_json live_bytes_now_and_peak();

}  // namespace fsdp
