#include <base/todo.h>
#include <prefetch.h>

#include <algorithm>

namespace fsdp {

void Prefetcher::add_root(Module& root) {
  todo("Prefetcher::add_root", "6.1");
}

void Prefetcher::add(Module& module, std::shared_ptr<FlatParameter> unit) {
  todo("Prefetcher::add", "6.1");
}

void Prefetcher::begin_forward() {
  todo("Prefetcher::begin_forward", "6.1");
}

void Prefetcher::in_forward(const std::shared_ptr<FlatParameter>& unit) {
  todo("Prefetcher::in_forward", "6.1");
}

void Prefetcher::end_forward() {
  todo("Prefetcher::end_forward", "6.1");
}

void Prefetcher::in_backward(const std::shared_ptr<FlatParameter>& unit) {
  todo("Prefetcher::in_backward", "6.3");
}

}  // namespace fsdp
