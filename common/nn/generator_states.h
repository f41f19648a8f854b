#pragma once

#include <base/torch.h>

#include <vector>

namespace fsdp {

// The states of the generators from which a forward on a device draws: the CPU's default generator
// and, for a CUDA device, the default generator of this device.
class GeneratorStates {
 public:
  explicit GeneratorStates(c10::Device device);  // saves the generators' current states
  void restore() const;                          // sets the generators to the saved states
  void seed(uint64_t seed) const;                // seeds the generators; the saved states stay

 private:
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> states_;  // the saved state of each generator
};

}  // namespace fsdp
