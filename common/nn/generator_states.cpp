#include <ATen/Context.h>
#include <nn/generator_states.h>

#include <mutex>

namespace fsdp {

GeneratorStates::GeneratorStates(c10::Device device) {
  generators_.push_back(at::globalContext().defaultGenerator(c10::kCPU));
  if (device.is_cuda()) generators_.push_back(at::globalContext().defaultGenerator(device));
  for (at::Generator& generator : generators_) {
    const std::scoped_lock lock(generator.mutex());
    states_.push_back(generator.get_state());
  }
}

void GeneratorStates::seed(uint64_t seed) const {
  for (at::Generator generator : generators_) {
    const std::scoped_lock lock(generator.mutex());
    generator.set_current_seed(seed);
  }
}

void GeneratorStates::restore() const {
  for (size_t i = 0; i < generators_.size(); ++i) {
    at::Generator generator = generators_[i];
    const std::scoped_lock lock(generator.mutex());
    generator.set_state(states_[i]);
  }
}

}  // namespace fsdp
