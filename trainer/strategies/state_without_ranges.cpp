#include <strategies/state_without_ranges.h>

namespace fsdp {

ModelState state_without_ranges(const std::vector<NamedParameter>& parameters) {
  ModelState state;
  for (const auto& [name, tensor] : parameters)
    state.parameters.push_back({name, tensor.sizes().vec()});
  return state;
}

}  // namespace fsdp
