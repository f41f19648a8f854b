#include <prefetch.h>

#include <algorithm>
#include <ranges>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

// A unit that has its parameters already issues nothing.
void issue(std::ranges::input_range auto&& units) {
  for (const auto& unit : units)
    unit->unshard_async();
}

}  // namespace

bool Prefetcher::Route::reach(const std::shared_ptr<FlatParameter>& unit) {
  const auto next = stops_.begin() + static_cast<std::ptrdiff_t>(passed_);
  const auto place = std::find(next, stops_.end(), unit);
  if (place == stops_.end()) return false;
  passed_ = static_cast<size_t>(place - stops_.begin()) + 1;
  return true;
}

std::span<const std::shared_ptr<FlatParameter>> Prefetcher::Route::ahead(size_t count) const {
  const std::span<const std::shared_ptr<FlatParameter>> stops(stops_);
  return stops.subspan(passed_, std::min(count, stops_.size() - passed_));
}

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
      [self = shared_from_this()](Module&, const torch::Tensor&) {
        self->end_forward();
        return torch::Tensor();
      },
      /*always_call=*/true);
}

void Prefetcher::add(Module& module, std::shared_ptr<FlatParameter> unit) {
  units_.push_back({&module, unit, {}, {}});
  module.register_forward_pre_hook([self = shared_from_this(), unit](Module&, const at::Tensor&) {
    self->pre_forward(unit);
    return torch::Tensor();
  });
  module.register_forward_hook(
      [self = shared_from_this(), unit](Module& called, const at::Tensor& output) {
        const bool comes_back = at::GradMode::is_enabled() && output.requires_grad();
        if (comes_back && called.reads_parameters_in_backward())
          self->backward_order_.push_back(unit);
        return torch::Tensor();
      });
  module.register_full_backward_pre_hook(
      [self = shared_from_this(), unit](Module&) { self->pre_backward(unit); });
}

void Prefetcher::begin_forward() {
  route_ = Route(std::exchange(forward_order_, {}));
  issue(route_.ahead(window_));
}

void Prefetcher::pre_forward(const std::shared_ptr<FlatParameter>& unit) {
  forward_order_.push_back(unit);
  const bool expected = route_.reach(unit);
  if (const auto& list = known(unit).forward_list) {
    issue(*list);
  } else if (expected) {
    issue(route_.ahead(window_));
  }
}

// Whoever uses a unit waits for it. So a unit that is still being gathered was not used; one that
// stays for backward has been.
void Prefetcher::end_forward() {
  for (const Known& known : units_) {
    if (known.unit->state() == UnitState::gathering) known.unit->reshard();
  }
}

// The last entry of the unit is the use that comes back. What ended after it in forward does not
// come back any more, or has come back already.
void Prefetcher::pre_backward(const std::shared_ptr<FlatParameter>& unit) {
  const auto place = std::ranges::find(backward_order_ | std::views::reverse, unit);
  const bool expected = place != backward_order_.rend();
  if (expected) backward_order_.erase(std::prev(place.base()), backward_order_.end());
  if (const auto& list = known(unit).backward_list) {
    issue(*list);
  } else if (expected) {
    issue(backward_order_ | std::views::reverse |
          std::views::take(static_cast<std::ptrdiff_t>(window_)));
  }
}

const Prefetcher::Known& Prefetcher::known(const std::shared_ptr<FlatParameter>& unit) const {
  return *std::ranges::find(units_, unit, &Known::unit);
}

}  // namespace fsdp
