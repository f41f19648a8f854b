#include <algorithm>
#include <stdexcept>

#include "prefetch_impl.h"

namespace fsdp {

std::shared_ptr<Prefetcher> make_prefetcher(int limit) {
  return std::make_shared<PrefetcherImpl>(limit);
}

void PrefetcherImpl::set_limit(int limit) {
  if (limit < 1) throw std::invalid_argument("prefetch: limit must be at least 1");
  window_ = static_cast<size_t>(limit - 1);
}

void PrefetcherImpl::add_root(Module& root) {
  auto self = shared_from_this();
  root.register_forward_pre_hook([self](Module&, const at::Tensor&) {
    self->begin_forward();
    return at::Tensor();
  });
  root.register_forward_hook(
      [self](Module&, const at::Tensor& output) {
        self->end_forward();
        if (!output.defined()) self->forget_forward();  // it threw
        return at::Tensor();
      },
      /*always_call=*/true);
}

void PrefetcherImpl::add(Module& module, std::shared_ptr<FlatParameter> unit) {
  units_[&module] = unit;
  auto self = shared_from_this();
  module.register_forward_pre_hook([self, unit](Module&, const at::Tensor&) {
    self->pre_forward(unit);
    return at::Tensor();
  });
  module.register_forward_hook([self, unit](Module& called, const at::Tensor& output) {
    // If the output requires no gradient, the call will not come back in backward: gradients are
    // off, or this unit and all units before it are frozen.
    const bool comes_back = output.requires_grad() && called.reads_parameters_in_backward();
    if (comes_back) self->backward_order_.push_back(unit);
    return at::Tensor();
  });
  module.register_full_backward_pre_hook([self, unit](Module&) { self->pre_backward(unit); });
}

void PrefetcherImpl::begin_forward() {
  last_order_ = std::move(forward_order_);
  forward_order_.clear();
  earlier_ = backward_order_.size();
  const size_t ahead = std::min(window_, last_order_.size());
  for (size_t i = 0; i < ahead; ++i)
    last_order_[i]->unshard_async();
}

void PrefetcherImpl::pre_forward(const std::shared_ptr<FlatParameter>& unit) {
  const size_t position = forward_order_.size();
  forward_order_.push_back(unit);
  if (issue(forward_lists_, unit)) return;
  // Compares positions, since a unit that is used twice has two followers.
  if (position >= last_order_.size() || last_order_[position] != unit) return;  // another path
  const size_t end = std::min(position + 1 + window_, last_order_.size());
  for (size_t i = position + 1; i < end; ++i)
    last_order_[i]->unshard_async();
}

void PrefetcherImpl::end_forward() {
  // Frees what was issued and not used, because this forward took another path than the last one. A
  // unit that stays for backward on purpose has been waited for, so it is not `gathering`.
  for (const auto& unit : last_order_) {
    if (unit->state() == UnitState::gathering) unit->reshard();
  }
  for (const auto& [unit, list] : forward_lists_)
    for (const auto& listed : list)
      if (listed->state() == UnitState::gathering) listed->reshard();
}

void PrefetcherImpl::forget_forward() {
  backward_order_.resize(std::min(earlier_, backward_order_.size()));
}

void PrefetcherImpl::end_backward() {
  backward_order_.clear();
  earlier_ = 0;
}

void PrefetcherImpl::pre_backward(const std::shared_ptr<FlatParameter>& unit) {
  if (issue(backward_lists_, unit)) return;
  // Searches from the end: if a unit is used twice, its last use comes back first. The entries
  // after it did not come back, because they are not part of the loss.
  const auto found = std::find(backward_order_.rbegin(), backward_order_.rend(), unit);
  if (found == backward_order_.rend()) return;
  backward_order_.erase(found.base() - 1, backward_order_.end());
  const size_t ahead = std::min(window_, backward_order_.size());
  for (size_t i = 1; i <= ahead; ++i)
    backward_order_[backward_order_.size() - i]->unshard_async();
}

}  // namespace fsdp
