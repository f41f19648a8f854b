#include <prefetch.h>

#include <algorithm>
#include <stdexcept>

namespace fsdp {

Prefetcher::Known& Prefetcher::known(const Module& module) {
  const auto found = std::ranges::find(units_, &module, &Known::module);
  if (found == units_.end()) {
    throw std::invalid_argument("prefetch: a module of type " + module.name() +
                                " was not given to add()");
  }
  return *found;
}

Prefetcher::Order Prefetcher::units_of(const std::vector<Module*>& modules) {
  Order units;
  for (const Module* module : modules)
    units.push_back(known(*module).unit);
  return units;
}

void Prefetcher::set_modules_to_forward_prefetch(Module& module,
                                                 const std::vector<Module*>& modules) {
  known(module).forward_list = units_of(modules);
}

void Prefetcher::set_modules_to_backward_prefetch(Module& module,
                                                  const std::vector<Module*>& modules) {
  known(module).backward_list = units_of(modules);
}

}  // namespace fsdp
