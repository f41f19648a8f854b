#include <prefetch_impl.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>

namespace fsdp {

void PrefetcherImpl::set_modules_to_forward_prefetch(Module& module,
                                                     const std::vector<Module*>& modules) {
  set(forward_lists_, module, modules);
}

void PrefetcherImpl::set_modules_to_backward_prefetch(Module& module,
                                                      const std::vector<Module*>& modules) {
  set(backward_lists_, module, modules);
}

void PrefetcherImpl::set(Lists& lists, Module& module, const std::vector<Module*>& modules) const {
  const auto unit_of = [this](Module* listed) {
    const auto found = units_.find(listed);
    if (found != units_.end()) return found->second;
    throw std::invalid_argument("prefetch: this " + listed->name() + " is no unit below the root");
  };
  Order list;
  std::transform(modules.begin(), modules.end(), std::back_inserter(list), unit_of);
  lists[unit_of(&module)] = list;
}

// Issues the all-gathers of the units in the list for `unit`. Returns whether there is a list.
bool PrefetcherImpl::issue(const Lists& lists, const std::shared_ptr<FlatParameter>& unit) {
  const auto found = lists.find(unit);
  if (found == lists.end()) return false;
  for (const auto& listed : found->second)
    listed->unshard_async();
  return true;
}

}  // namespace fsdp
