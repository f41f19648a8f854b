#pragma once

#include <comm/call_observer.h>
#include <comm/communicator.h>
#include <strategies/workload.h>
#include <train/flop_clock.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

namespace fsdp {

// Counts with a FlopClock how long the training of one rank takes, and measures the memory that the
// rank uses for things other than tensors.
class CountedRun final : public CallObserver {
 public:
  // Create this object before the model. The constructor disables huge pages in this process,
  // because written_bytes() would count a whole huge page even if little of it is used.
  explicit CountedRun(std::shared_ptr<FlopClock> clock);

  // Returns `workload` with a loss() that also measures the memory beside tensors. It measures when
  // the loss has been computed, because the rank then holds all that it keeps for the backward
  // pass. This object also measures whenever the rank issues a collective.
  Workload observed(Workload workload);

  void begin();  // starts counting; call it before the first step

  // Calls `work`, which may be collective, between two steps. Neither its time nor its memory
  // counts: an evaluation is no training, and the time of a step has no evaluation either.
  void leave_out(const std::function<void()>& work);

  // Collective; call it after the last step, before other collectives. Returns {"nanoseconds":
  // [...], "computing": [...], "besides": [...]}. Each list has a number for each rank:
  // - "nanoseconds": the time from begin() until all collectives of all ranks have ended, without
  //   that of leave_out();
  // - "computing": the part of this time in which the rank computed;
  // - "besides": the most bytes of memory that the rank had written to since this object was
  //   created and that are not memory of tensors, for example memory of a std::vector.
  nlohmann::ordered_json end(Communicator& comm);

  void issued(const Call& /*call*/, const at::Tensor& /*output*/) override { measure(); }
  void waits(const Call& /*call*/) override {}
  void waited(const Call& /*call*/, Moved /*moved*/) override {}

 private:
  void measure();

  std::shared_ptr<FlopClock> clock_;
  // [ns] What now() and computing() of the clock returned when begin() was called.
  int64_t began_{}, computing_{};
  int64_t written_;  // number of bytes of memory beside tensors when this object was made
  int64_t besides_{};
  bool left_out_{};  // whether leave_out() runs now
};

}  // namespace fsdp
