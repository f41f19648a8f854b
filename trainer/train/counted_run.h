#pragma once

#include <comm/call_observer.h>
#include <comm/communicator.h>
#include <strategies/workload.h>
#include <train/flop_clock.h>

#include <memory>
#include <nlohmann/json.hpp>

namespace fsdp {

// Counts with a FlopClock how long the training of one rank takes, and measures the memory that the
// rank uses for other things than tensors.
class CountedRun final : public CallObserver {
 public:
  // Make it before the model. Disables huge pages (written_bytes.h).
  explicit CountedRun(std::shared_ptr<FlopClock> clock);

  // Returns `workload` with a loss() that also measures the memory beside tensors, when the loss is
  // computed: then a rank holds all that it keeps for the backward pass. This object measures the
  // memory also whenever the rank issues a collective.
  Workload observed(Workload workload);

  void begin();  // call it before the first step

  // Collective; call it after the last step, before other collectives. Returns
  // {"nanoseconds": [...], "computing": [...], "besides": [...]}, with a number for each rank:
  // - the time from begin() until all collectives of all ranks have ended;
  // - the part of this time in which the rank computed;
  // - the most bytes of memory, such as a std::vector, that the rank has written to since this
  //   object was made and that is not memory of tensors.
  nlohmann::ordered_json end(Communicator& comm);

  void issued(const Call& /*call*/, const at::Tensor& /*output*/) override { measure(); }
  void waits(const Call& /*call*/) override {}
  void waited(const Call& /*call*/, Moved /*moved*/) override {}

 private:
  void measure();

  std::shared_ptr<FlopClock> clock_;
  int64_t began_{}, computing_{};  // [ns] at begin()
  int64_t written_;                // [bytes] beside tensors when this object was made
  int64_t besides_{};
};

}  // namespace fsdp
