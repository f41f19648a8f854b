#include <prefetch.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>

namespace fsdp {

void Prefetcher::set_list(Lists Prefetcher::*lists, const Module& module,
                          const std::vector<Module*>& modules) {
  const auto unit_of = [this](const Module* wanted) {
    const auto unit = units_.find(wanted);
    if (unit == units_.end()) {
      throw std::invalid_argument("prefetch: " + (wanted ? wanted->name() : "a null pointer") +
                                  " is not the module of a unit that was added");
    }
    return unit->second;
  };
  const auto unit = unit_of(&module);
  Order list;
  std::ranges::transform(modules, std::back_inserter(list), unit_of);
  (this->*lists)[unit.get()] = std::move(list);
}

void Prefetcher::set_modules_to_forward_prefetch(Module& module,
                                                 const std::vector<Module*>& modules) {
  set_list(&Prefetcher::forward_lists_, module, modules);
}

void Prefetcher::set_modules_to_backward_prefetch(Module& module,
                                                  const std::vector<Module*>& modules) {
  set_list(&Prefetcher::backward_lists_, module, modules);
}

}  // namespace fsdp
