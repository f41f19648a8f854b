#include <strategy/module_of_unit.h>

#include <stdexcept>

namespace fsdp {

Module& module_of_unit(const torch::nn::Module& root, const ShardLayout::Unit& unit) {
  const auto modules = root.named_modules();
  const auto* found = modules.find(unit.name);
  auto* module = found != nullptr ? dynamic_cast<Module*>(found->get()) : nullptr;
  if (module == nullptr) {
    throw std::logic_error("layout: unit " + unit.name +
                           " is not marked as the root's, and no fsdp::Module has this name");
  }
  return *module;
}

}  // namespace fsdp
