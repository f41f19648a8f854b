#include <prefetch.h>

#include <stdexcept>
#include <utility>

namespace fsdp {

void Prefetcher::set(Direction& direction, Module& module,
                     const std::vector<Module*>& modules) const {
  if (!unit_of_.contains(&module)) throw std::invalid_argument("prefetch: a module without a unit");
  Queue list;
  for (Module* other : modules) {
    if (!unit_of_.contains(other)) throw std::invalid_argument("prefetch: a listed non-unit");
    list.push_back(unit_of_.at(other));
  }
  direction.lists.insert_or_assign(unit_of_.at(&module).get(), std::move(list));
}

void Prefetcher::set_modules_to_forward_prefetch(Module& module,
                                                 const std::vector<Module*>& modules) {
  set(forward_, module, modules);
}

void Prefetcher::set_modules_to_backward_prefetch(Module& module,
                                                  const std::vector<Module*>& modules) {
  set(backward_, module, modules);
}

}  // namespace fsdp
