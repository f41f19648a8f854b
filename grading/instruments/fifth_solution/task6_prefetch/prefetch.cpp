#include <prefetch.h>

#include <algorithm>
#include <iterator>
#include <ranges>
#include <stdexcept>
#include <utility>

namespace fsdp {

void Prefetcher::set_limit(int limit) {
  if (limit < 1) throw std::invalid_argument("prefetch: limit must be at least 1");
  window_ = static_cast<size_t>(limit - 1);
}

namespace {

// A hook that changes neither input nor output. It owns what `run` holds.
template <class Run>
Module::Hook hook(Run run) {
  return [run = std::move(run)](Module& module, const torch::Tensor& tensor) {
    run(module, tensor);
    return torch::Tensor();
  };
}

constexpr auto kIssue = [](const std::shared_ptr<FlatParameter>& unit) { unit->unshard_async(); };

}  // namespace

void Prefetcher::add_root(Module& root) {
  const auto self = shared_from_this();
  root.register_forward_pre_hook(hook([self](auto&&...) { self->begin_forward(); }));
  root.register_forward_hook(hook([self](auto&&...) { self->end_forward(); }),
                             /*always_call=*/true);
}

void Prefetcher::add(Module& module, std::shared_ptr<FlatParameter> unit) {
  units_[&module] = unit;
  const auto self = shared_from_this();
  module.register_forward_pre_hook(hook([self, unit](auto&&...) { self->pre_forward(unit); }));
  module.register_forward_hook(hook([self, unit](Module& ended, const torch::Tensor& output) {
    const bool comes_back = at::GradMode::is_enabled() && output.requires_grad();
    if (comes_back && ended.reads_parameters_in_backward()) self->backward_order_.push_back(unit);
  }));
  module.register_full_backward_pre_hook([self, unit](Module& begun) {
    if (begun.reads_parameters_in_backward()) self->pre_backward(unit);
  });
}

void Prefetcher::begin_forward() {
  last_order_ = std::exchange(forward_order_, {});
  for (const auto& unit : last_order_ | std::views::take(window_)) {
    issued_ahead_.push_back(unit);
    unit->unshard_async();
  }
}

void Prefetcher::pre_forward(const std::shared_ptr<FlatParameter>& unit) {
  const size_t position = forward_order_.size();
  forward_order_.push_back(unit);
  Order next;
  if (const auto list = forward_lists_.find(unit.get()); list != forward_lists_.end())
    next = list->second;
  else if (position < last_order_.size() && last_order_[position] == unit)
    std::ranges::copy(last_order_ | std::views::drop(position + 1) | std::views::take(window_),
                      std::back_inserter(next));
  std::ranges::copy(next, std::back_inserter(issued_ahead_));
  std::ranges::for_each(next, kIssue);
}

// Somebody has waited for a unit that was used. What is still gathering was issued in vain.
void Prefetcher::end_forward() {
  const auto in_vain = [](const auto& unit) { return unit->state() == UnitState::gathering; };
  for (const auto& unit : std::exchange(issued_ahead_, {}) | std::views::filter(in_vain))
    unit->reshard();
}

void Prefetcher::pre_backward(const std::shared_ptr<FlatParameter>& unit) {
  // What ended after this call has come back before it, or never will.
  const auto use = std::ranges::find(backward_order_ | std::views::reverse, unit);
  const bool expected = use != backward_order_.rend();
  if (expected) backward_order_.erase(std::prev(use.base()), backward_order_.end());
  if (const auto list = backward_lists_.find(unit.get()); list != backward_lists_.end())
    std::ranges::for_each(list->second, kIssue);
  else if (expected)
    std::ranges::for_each(backward_order_ | std::views::reverse | std::views::take(window_),
                          kIssue);
}

}  // namespace fsdp
