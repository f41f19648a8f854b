#include <prefetch.h>

#include <algorithm>
#include <stdexcept>

namespace fsdp {
namespace {

// Frees what was issued and is not used.
template <class Iterator>
void pass_over(Iterator begin, Iterator end) {
  std::for_each(begin, end, [](const std::shared_ptr<FlatParameter>& unit) {
    if (unit->state() != UnitState::unsharded) unit->reshard();
  });
}

}  // namespace

Prefetcher::Prefetcher(int limit) {
  set_limit(limit);
}

void Prefetcher::set_limit(int limit) {
  if (limit < 1) throw std::invalid_argument("prefetch: a limit has to be 1 or more");
  limit_ = limit;
}

void Prefetcher::issue_ahead(const Queue& coming) const {
  const size_t count = std::min(static_cast<size_t>(limit_) - 1, coming.size());
  std::for_each_n(coming.begin(), count, [](const auto& unit) { unit->unshard_async(); });
}

void Prefetcher::advance(Direction& direction, const std::shared_ptr<FlatParameter>& unit) const {
  const auto list = direction.lists.find(unit.get());
  const bool listed = list != direction.lists.end();
  if (listed)
    std::for_each(list->second.begin(), list->second.end(),
                  [](const auto& other) { other->unshard_async(); });
  Queue& coming = direction.coming;
  const auto found = std::find(coming.begin(), coming.end(), unit);
  if (found == coming.end()) return;  // a detour
  pass_over(coming.begin(), found);
  coming.erase(coming.begin(), found + 1);
  if (!listed) issue_ahead(coming);
}

void Prefetcher::add_root(Module& root) {
  const auto self = shared_from_this();
  root.register_forward_pre_hook([self](Module&, const at::Tensor&) {
    self->forward_.coming.assign(self->order_.begin(), self->order_.end());
    self->order_.clear();
    self->issue_ahead(self->forward_.coming);
    return at::Tensor();
  });
  root.register_forward_hook(
      [self](Module&, const at::Tensor&) {
        for (const auto& [unit, list] : self->forward_.lists)
          pass_over(list.begin(), list.end());
        pass_over(self->forward_.coming.begin(), self->forward_.coming.end());
        self->forward_.coming.clear();
        return at::Tensor();
      },
      /*always_call=*/true);
}

void Prefetcher::add(Module& module, std::shared_ptr<FlatParameter> unit) {
  unit_of_[&module] = unit;
  const auto self = shared_from_this();
  module.register_forward_pre_hook([self, unit](Module&, const at::Tensor&) {
    self->order_.push_back(unit);
    self->advance(self->forward_, unit);
    return at::Tensor();
  });
  module.register_forward_hook([self, unit](Module& ended, const at::Tensor& output) {
    const bool comes_back = at::GradMode::is_enabled() && output.requires_grad();
    if (comes_back && ended.reads_parameters_in_backward()) self->backward_.coming.push_front(unit);
    return at::Tensor();
  });
  module.register_full_backward_pre_hook(
      [self, unit](Module&) { self->advance(self->backward_, unit); });
}

void Prefetcher::end_backward() {
  pass_over(backward_.coming.begin(), backward_.coming.end());
  backward_.coming.clear();
}

}  // namespace fsdp
