#pragma once

#include <nn/generator_states.h>

#include <cstdint>

namespace fsdp {

// While this object lives, the default generator of the CPU and, if `device` is a GPU, the default
// generator of this GPU draw numbers that depend only on the arguments. The destructor restores the
// earlier states of the generators. Use a RandomScope around the forward of each microbatch: then
// dropout sets the same elements to zero whichever rank computes the microbatch. (If
// checkpoint_activations() recomputes a forward in backward, it restores the generators' states, so
// the forward draws the same numbers again.)
class RandomScope {
 public:
  RandomScope(c10::Device device, uint64_t seed, int64_t step, int64_t microbatch);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;

 private:
  GeneratorStates before_;
};

}  // namespace fsdp
