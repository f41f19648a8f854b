#include <strategies/unit_modules.h>

#include <stdexcept>

namespace fsdp {

std::vector<Module*> modules_of_units(const torch::nn::Module& root, const ShardLayout& layout) {
  const auto modules = root.named_modules();
  std::vector<Module*> found(layout.units.size(), nullptr);
  for (size_t i = 0; i < found.size(); ++i) {
    const auto& unit = layout.units[i];
    if (unit.root) continue;
    const auto* module = modules.find(unit.module());
    if (module != nullptr) found[i] = dynamic_cast<Module*>(module->get());
    if (found[i] == nullptr) {
      throw std::logic_error("layout: unit " + unit.name +
                             " is not marked as the root's, and no fsdp::Module has this name");
    }
  }
  return found;
}

void mark_units_without_unshard_in_backward(const torch::nn::Module& root, ShardLayout& layout) {
  const auto modules = modules_of_units(root, layout);
  for (size_t unit = 0; unit < modules.size(); ++unit)
    if (modules[unit] != nullptr && !modules[unit]->reads_parameters_in_backward())
      layout.no_unshard_in_backward.insert(unit);
}

}  // namespace fsdp
