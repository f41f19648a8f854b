#include <base/todo.h>
#include <prefetch.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>

namespace fsdp {

void Prefetcher::set_modules_to_forward_prefetch(Module& module,
                                                 const std::vector<Module*>& modules) {
  todo("Prefetcher::set_modules_to_forward_prefetch", "6.6");
}

void Prefetcher::set_modules_to_backward_prefetch(Module& module,
                                                  const std::vector<Module*>& modules) {
  todo("Prefetcher::set_modules_to_backward_prefetch", "6.6");
}

}  // namespace fsdp
