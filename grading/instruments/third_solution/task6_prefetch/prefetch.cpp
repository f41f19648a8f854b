#include <prefetch.h>

#include <algorithm>
#include <ranges>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

// Waits for none of them.
template <class Units>
void issue(Units&& units) {
  for (const auto& unit : units)
    unit->unshard_async();
}

}  // namespace

Prefetcher::Prefetcher(int limit) {
  set_limit(limit);
}

void Prefetcher::set_limit(int limit) {
  if (limit < 1) throw std::invalid_argument("prefetch: limit must be at least 1");
  window_ = static_cast<size_t>(limit - 1);
}

void Prefetcher::add_root(Module& root) {
  root.register_forward_pre_hook([self = shared_from_this()](Module&, const torch::Tensor&) {
    self->begin_forward();
    return torch::Tensor();
  });
  root.register_forward_hook(
      [self = shared_from_this()](Module&, const torch::Tensor& output) {
        if (!output.defined()) self->drop_broken_forward();
        self->end_forward();
        return torch::Tensor();
      },
      /*always_call=*/true);
}

void Prefetcher::add(Module& module, std::shared_ptr<FlatParameter> unit) {
  added_.push_back({&module, unit});
  module.register_forward_pre_hook(
      [self = shared_from_this(), unit](Module&, const torch::Tensor&) {
        self->pre_forward(unit);
        return torch::Tensor();
      });
  module.register_forward_hook(
      [self = shared_from_this(), unit](Module& here, const torch::Tensor& output) {
        if (here.reads_parameters_in_backward()) self->post_forward(unit, output);
        return torch::Tensor();
      });
  module.register_full_backward_pre_hook(
      [self = shared_from_this(), unit](Module&) { self->pre_backward(unit); });
}

void Prefetcher::begin_forward() {
  expected_ = std::exchange(forward_order_, {});
  backward_mark_ = backward_order_.size();
  open_ = true;
  on_path_ = true;
  issue(expected_ | std::views::take(window_));
}

void Prefetcher::pre_forward(const std::shared_ptr<FlatParameter>& unit) {
  if (!open_) return;  // somebody calls the module alone
  const size_t position = forward_order_.size();
  forward_order_.push_back(unit);
  on_path_ = on_path_ && position < expected_.size() && expected_[position] == unit;
  if (const auto list = forward_lists_.find(unit.get()); list != forward_lists_.end()) {
    issue(list->second);
  } else if (on_path_) {
    issue(expected_ | std::views::drop(position + 1) | std::views::take(window_));
  }
}

void Prefetcher::post_forward(const std::shared_ptr<FlatParameter>& unit,
                              const torch::Tensor& output) {
  if (at::GradMode::is_enabled() && output.requires_grad()) backward_order_.push_back(unit);
}

// What nobody has waited for was issued for a path that was not taken.
void Prefetcher::end_forward() {
  open_ = false;
  for (const Added& added : added_)
    if (added.unit->state() == UnitState::gathering) added.unit->reshard();
}

void Prefetcher::drop_broken_forward() {
  backward_order_.resize(std::min(backward_order_.size(), backward_mark_));
}

void Prefetcher::pre_backward(const std::shared_ptr<FlatParameter>& unit) {
  // The last of its uses that has not come back. What ended after it will not come back any more.
  const auto found = std::ranges::find(std::views::reverse(backward_order_), unit);
  const bool known = found != backward_order_.rend();
  if (known) backward_order_.erase(std::prev(found.base()), backward_order_.end());
  if (const auto list = backward_lists_.find(unit.get()); list != backward_lists_.end()) {
    issue(list->second);
  } else if (known) {
    issue(std::views::reverse(backward_order_) | std::views::take(window_));
  }
}

}  // namespace fsdp
