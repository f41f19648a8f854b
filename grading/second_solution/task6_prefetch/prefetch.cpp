#include <prefetch.h>

#include <algorithm>
#include <deque>
#include <map>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

// Reshards the units from `begin` to `end`, whose all-gathers were issued ahead, but which will not
// be used. Leaves a unit that is unsharded, because it is in use.
template <class Iterator>
void pass_over(Iterator begin, Iterator end) {
  std::for_each(begin, end, [](const std::shared_ptr<FlatParameter>& unit) {
    if (unit->state() != UnitState::unsharded) unit->reshard();
  });
}

// Forward and backward each have a queue `coming` of the units that are expected to run next. When
// a unit runs, pass_over() reshards the units before it in the queue, and issue_ahead() issues the
// all-gathers of the next units in the queue, up to the limit.
class PrefetcherImpl final : public Prefetcher,
                             public std::enable_shared_from_this<PrefetcherImpl> {
 public:
  explicit PrefetcherImpl(int limit) { PrefetcherImpl::set_limit(limit); }

  void set_limit(int limit) override;
  void add_root(Module& root) override;
  void add(Module& module, std::shared_ptr<FlatParameter> unit) override;
  void end_backward() override;
  void set_modules_to_forward_prefetch(Module& module,
                                       const std::vector<Module*>& modules) override {
    set(forward_, module, modules);
  }
  void set_modules_to_backward_prefetch(Module& module,
                                        const std::vector<Module*>& modules) override {
    set(backward_, module, modules);
  }
  const std::vector<std::shared_ptr<FlatParameter>>& forward_order() const override {
    return order_;
  }

 private:
  using Queue = std::deque<std::shared_ptr<FlatParameter>>;
  struct Direction {
    Queue coming;
    // Unit -> the units that the user has listed for it. When the unit runs, the all-gathers of the
    // listed units are issued, in place of those of the next units in `coming`.
    std::map<FlatParameter*, Queue> lists;
  };
  void issue_ahead(const Queue& coming) const;
  void advance(Direction& direction, const std::shared_ptr<FlatParameter>& unit) const;
  void set(Direction& direction, Module& module, const std::vector<Module*>& modules) const;

  int limit_{};
  std::map<Module*, std::shared_ptr<FlatParameter>> unit_of_;
  // The units in the order of use in the current forward; between forwards, in the last one.
  std::vector<std::shared_ptr<FlatParameter>> order_;
  // forward_.coming is the queue of the units that the last forward used and that the current
  // forward has not used yet.
  Direction forward_;
  // backward_.coming is the queue of the units whose forward has ended. The unit whose forward
  // ended last comes first.
  Direction backward_;
  // The number of units that backward_.coming had when the current forward began.
  size_t earlier_{};
};

void PrefetcherImpl::set_limit(int limit) {
  if (limit < 1) throw std::invalid_argument("prefetch: a limit has to be 1 or more");
  limit_ = limit;
}

void PrefetcherImpl::issue_ahead(const Queue& coming) const {
  const size_t count = std::min(static_cast<size_t>(limit_) - 1, coming.size());
  std::for_each_n(coming.begin(), count, [](const auto& unit) { unit->unshard_async(); });
}

void PrefetcherImpl::advance(Direction& direction,
                             const std::shared_ptr<FlatParameter>& unit) const {
  const auto list = direction.lists.find(unit.get());
  const bool listed = list != direction.lists.end();
  if (listed)
    std::for_each(list->second.begin(), list->second.end(),
                  [](const auto& other) { other->unshard_async(); });
  Queue& coming = direction.coming;
  const auto found = std::find(coming.begin(), coming.end(), unit);
  // If the modules run in another order than expected, `unit` may be missing from the queue. Then
  // the queue stays as it is.
  if (found == coming.end()) return;
  pass_over(coming.begin(), found);
  coming.erase(coming.begin(), found + 1);
  if (!listed) issue_ahead(coming);
}

void PrefetcherImpl::add_root(Module& root) {
  const auto self = shared_from_this();
  root.register_forward_pre_hook([self](Module&, const at::Tensor&) {
    self->forward_.coming.assign(self->order_.begin(), self->order_.end());
    self->order_.clear();
    self->earlier_ = self->backward_.coming.size();
    self->issue_ahead(self->forward_.coming);
    return at::Tensor();
  });
  root.register_forward_hook(
      [self](Module&, const at::Tensor& output) {
        // If the forward has thrown, `output` is undefined. Backward will not run through the calls
        // of this forward, so their units are removed from the queue of backward.
        Queue& back = self->backward_.coming;
        while (!output.defined() && back.size() > self->earlier_)
          back.pop_front();
        for (const auto& [unit, list] : self->forward_.lists)
          pass_over(list.begin(), list.end());
        pass_over(self->forward_.coming.begin(), self->forward_.coming.end());
        self->forward_.coming.clear();
        return at::Tensor();
      },
      /*always_call=*/true);
}

void PrefetcherImpl::add(Module& module, std::shared_ptr<FlatParameter> unit) {
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

void PrefetcherImpl::end_backward() {
  pass_over(backward_.coming.begin(), backward_.coming.end());
  backward_.coming.clear();
  earlier_ = 0;
}

void PrefetcherImpl::set(Direction& direction, Module& module,
                         const std::vector<Module*>& modules) const {
  if (!unit_of_.contains(&module)) throw std::invalid_argument("prefetch: a module without a unit");
  Queue list;
  for (Module* other : modules) {
    if (!unit_of_.contains(other)) throw std::invalid_argument("prefetch: a listed non-unit");
    list.push_back(unit_of_.at(other));
  }
  direction.lists.insert_or_assign(unit_of_.at(&module).get(), std::move(list));
}

}  // namespace

std::shared_ptr<Prefetcher> make_prefetcher(int limit) {
  return std::make_shared<PrefetcherImpl>(limit);
}

}  // namespace fsdp
