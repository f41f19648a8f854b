#include <prefetch.h>

#include <algorithm>
#include <stdexcept>

namespace fsdp {

const std::shared_ptr<FlatParameter>& Prefetcher::unit_of(const Module* module) const {
  const auto found = std::ranges::find(added_, module, &Added::module);
  if (found == added_.end())
    throw std::invalid_argument("prefetch: a module was not given to add()");
  return found->unit;
}

Prefetcher::Order Prefetcher::units_of(const std::vector<Module*>& modules) const {
  Order units;
  for (const Module* module : modules)
    units.push_back(unit_of(module));
  return units;
}

void Prefetcher::set_modules_to_forward_prefetch(Module& module,
                                                 const std::vector<Module*>& modules) {
  forward_lists_.insert_or_assign(unit_of(&module).get(), units_of(modules));
}

void Prefetcher::set_modules_to_backward_prefetch(Module& module,
                                                  const std::vector<Module*>& modules) {
  backward_lists_.insert_or_assign(unit_of(&module).get(), units_of(modules));
}

}  // namespace fsdp
