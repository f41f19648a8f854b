#include <base/todo.h>
#include <prefetch.h>

#include <algorithm>
#include <stdexcept>

namespace fsdp {

void Prefetcher::set_limit(int limit) {
  if (limit < 1) throw std::invalid_argument("prefetch: limit must be at least 1");
  window_ = static_cast<size_t>(limit - 1);
}

void Prefetcher::add_root(Module& root) {
  todo("Prefetcher::add_root", "6.1");
}

void Prefetcher::add(Module& module, std::shared_ptr<FlatParameter> unit) {
  todo("Prefetcher::add", "6.1");
}

void Prefetcher::begin_forward() {
  todo("Prefetcher::begin_forward", "6.1");
}

void Prefetcher::pre_forward(const std::shared_ptr<FlatParameter>& unit) {
  todo("Prefetcher::pre_forward", "6.1");
}

void Prefetcher::end_forward() {
  todo("Prefetcher::end_forward", "6.1");
}

void Prefetcher::pre_backward(const std::shared_ptr<FlatParameter>& unit) {
  todo("Prefetcher::pre_backward", "6.3");
}

}  // namespace fsdp
