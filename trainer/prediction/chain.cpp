#include <prediction/model_trace.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace fsdp {
namespace {

using Kind = ModelTrace::Kind;

class Chain {
 public:
  Chain(const TrainConfig& config, const ShardLayout& layout, const std::vector<UnitTime>& times,
        std::optional<size_t> units_before_readers)
      : config_(config),
        layout_(layout),
        times_(times),
        units_before_readers_(units_before_readers) {
    for (size_t unit = 0; unit < layout.units.size(); ++unit)
      (layout.units[unit].root ? roots_ : order_).push_back(unit);
    after_.resize(order_.size() + 1);
    inside_.resize(layout.units.size());
    for (size_t i = 0; i < layout.parameters.size(); ++i)
      if (layout.parameters[i].trainable) place(i);
  }

  ModelTrace trace() {
    for (const size_t root : roots_)
      add_forward(Kind::pre_forward, root);
    for (size_t i = 0; i < order_.size(); ++i) {
      add_forward(Kind::pre_forward, order_[i]);
      add_forward(Kind::post_forward, order_[i], needs_gradient(i));
    }
    for (const size_t root : roots_)
      add_forward(Kind::post_forward, root, /*last=*/false);

    for (const size_t root : roots_) {
      add_backward({Kind::pre_backward, root});
      computing_ += time_of(root).backward;
    }
    add_gradients(after_.back());
    end_reads_of_root(order_.size());
    for (size_t i = order_.size(); i-- > 0;) {
      if (needs_gradient(i)) add_backward({Kind::pre_backward, order_[i]});
      computing_ += time_of(order_[i]).backward;
      add_gradients(inside_[order_[i]]);
      if (i >= first_with_gradient_) add_backward({Kind::post_backward, order_[i]});
      add_gradients(after_[i]);
      end_reads_of_root(i);
    }
    add_backward({Kind::end});
    return std::move(trace_);
  }

 private:
  // Returns whether the output of a unit's module requires a gradient. `place`: the index of the
  // unit in order_.
  bool needs_gradient(size_t place) const { return place + 1 >= first_with_gradient_; }
  UnitTime time_of(size_t unit) const { return times_.empty() ? UnitTime{} : times_.at(unit); }

  // Finds the place in the backward pass at which the gradient of the trainable parameter number
  // `index` becomes complete. Call it in the order of the parameters.
  // - A parameter of a unit, and a parameter of the root that lies inside the unit's module, belong
  //   to the unit's module.
  // - Every other parameter of the root belongs to a layer after the units of the parameters with a
  //   lower index.
  void place(size_t index) {
    const auto& parameter = layout_.parameters[index];
    const auto inside = std::ranges::find_if(order_, [&](size_t unit) {
      return parameter.unit == unit || parameter.name.starts_with(layout_.units[unit].name + ".");
    });
    size_t next = met_;
    if (inside != order_.end()) next = static_cast<size_t>(inside - order_.begin()) + 1;
    first_with_gradient_ = std::min(first_with_gradient_, next);
    (inside == order_.end() ? after_[met_] : inside_[*inside]).push_back(index);
    if (!layout_.units[parameter.unit].root) met_ = std::max(met_, next);
  }

  void add_forward(Kind kind, size_t unit, bool last = true) {
    trace_.forward.push_back({kind, unit, last && !layout_.no_unshard_in_backward.contains(unit)});
    if (kind == Kind::post_forward) trace_.forward.back().time = time_of(unit).forward;
  }
  void add_backward(ModelTrace::Event event) {
    event.time = std::exchange(computing_, 0);
    trace_.backward.push_back(event);
  }
  // Call this when the backward of the units order_[place], order_[place + 1], ... has ended. Adds
  // the event Kind::root_unread if `place` is the number of units before the first module that
  // reads the root's parameters in backward, because the backward of all such modules has ended
  // then. (If `place` is 0, backward ends anyway.)
  void end_reads_of_root(size_t place) {
    if (place > 0 && units_before_readers_ == place) add_backward({Kind::root_unread});
  }
  void add_gradients(const std::vector<size_t>& parameters) {
    for (const size_t index : parameters) {
      const auto& parameter = layout_.parameters[index];
      const MixedPrecisionPolicy precision = config_.precision.policy_of(parameter.name);
      add_backward({.kind = Kind::gradient,
                    .index = index,
                    .gradient_bytes = parameter.numel * precision.param_bytes()});
    }
  }

  const TrainConfig& config_;
  const ShardLayout& layout_;
  const std::vector<UnitTime>& times_;
  const std::optional<size_t> units_before_readers_;
  std::vector<size_t> roots_, order_;
  // Index in order_ just behind the last unit of which place() has met a parameter so far.
  size_t met_{};
  // Indices of trainable parameters. after_[n]: the root's parameters in layers that come after the
  // first n units of order_. inside_[unit]: the parameters in the module of the unit.
  std::vector<std::vector<size_t>> after_, inside_;
  // Index in order_ of the first unit whose module has an input that requires a gradient. The
  // inputs of all units after it require one, too.
  size_t first_with_gradient_{std::numeric_limits<size_t>::max()};
  int64_t computing_{};  // [ns] of computing since the last event of backward was added
  ModelTrace trace_;
};

}  // namespace

ModelTraces chain_of(const TrainConfig& config, const ShardLayout& layout,
                     const std::vector<UnitTime>& times,
                     std::optional<size_t> units_before_readers) {
  ModelTraces traces;
  traces.begins = Chain(config, layout, times, units_before_readers).trace();
  traces.adds = traces.begins;
  for (auto& event : traces.adds.backward)
    event.gradient_bytes = 0;
  return traces;
}

}  // namespace fsdp
