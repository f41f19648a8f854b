#include <config/arrangement.h>
#include <optim/gradient_buckets.h>
#include <prediction/scheduled_step.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace fsdp {
namespace {

int64_t padded(const ShardLayout::Parameter& parameter) {
  return round_up(parameter.numel, kAlignment);
}

// fsdp. The root, if it holds parameters, stays gathered to the end of the pass. The other units
// compute in the order of the layout, and in backward in the opposite one.
class ShardedStep : public ScheduledStep {
 public:
  ShardedStep(const TrainConfig& config, const ShardLayout& layout, int rank, bool first)
      : ScheduledStep(config, layout, first),
        shard_(rank % layout.world_size),
        precision_(layout.units.size()),
        gradient_bytes_(layout.units.size()),
        has_gradient_(layout.units.size()),
        state_of_unit_(layout.units.size()),
        root_bytes_inside_(layout.units.size()),
        gathers_(layout.units.size()) {
    for (size_t unit = 0; unit < layout.units.size(); ++unit) {
      (layout.units[unit].root ? roots_ : order_).push_back(unit);
      if (layout.units[unit].trainable) trainable_bytes_ += shard_bytes(unit);
    }
    root_bytes_after_.resize(order_.size() + 1);
    size_t met = 0;  // units
    for (const auto& parameter : layout.parameters) {
      const bool of_root = layout.units[parameter.unit].root;
      const auto place = std::find(order_.begin(), order_.end(), parameter.unit) - order_.begin();
      if (!of_root) met = std::max(met, static_cast<size_t>(place) + 1);
      precision_[parameter.unit] = config.precision_of(parameter.name);  // as that of its others
      if (!parameter.trainable) continue;
      const int64_t bytes = parameter.numel * precision_[parameter.unit].param_bytes();
      gradient_bytes_[parameter.unit] += bytes;
      const auto inside = std::find_if(order_.begin(), order_.end(), [&](size_t unit) {
        return parameter.unit == unit || parameter.name.starts_with(layout.units[unit].name + ".");
      });
      const bool between = inside == order_.end();
      const size_t next = between ? met : static_cast<size_t>(inside - order_.begin()) + 1;
      first_with_gradient_ = std::min(first_with_gradient_, next);
      if (of_root) (between ? root_bytes_after_[met] : root_bytes_inside_[*inside]) += bytes;
    }
    const auto holds = [](const auto& outer, const auto& inner) {
      return !outer.root && inner.name.starts_with(outer.name + ".");
    };
    const auto& units = layout.units;
    schedule_.in_order = std::adjacent_find(units.begin(), units.end(), holds) == units.end();
  }

 private:
  void hold() override {
    for (size_t unit = 0; unit < layout_.units.size(); ++unit) {
      allocate(MemoryClass::shards, shard_bytes(unit));
      if (precision_[unit].rounds_parameters()) {
        allocate(MemoryClass::shards, gathered_bytes(unit) / layout_.world_size);
      }
      add_state_of_shard(unit);
    }
  }

  void forward() override {
    const size_t window = first_ && part_ == 0 ? 0 : forward_window_;
    for (const size_t root : roots_)
      unshard(root);
    gather(order_, 0, window);
    pass(Phase::forward, order_, window, [&](size_t unit) {
      if (config_.reshard_after_forward || !training_) reshard(unit);
    });
    for (const size_t root : roots_) {
      add(Schedule::Compute{root, Phase::forward});
      if (!training_) reshard(root);
    }
  }

  void backward() override {
    if (puts_aside()) has_gradient_.assign(has_gradient_.size(), false);
    for (const size_t root : roots_)
      add(Schedule::Compute{root, Phase::backward});
    if (arrangement_.turns_first) return backward_without_reduction();
    size_t left = order_.size();
    allocate(MemoryClass::gradients, root_bytes_after_[left]);
    pass(Phase::backward, {order_.rbegin(), order_.rend()}, backward_window_, [&](size_t unit) {
      allocate(MemoryClass::gradients, gradient_bytes_[unit] + root_bytes_inside_[unit]);
      reshard(unit);
      reduce(unit);
      --left;
      if (config_.step_in_backward && left >= first_with_gradient_) step_reduced_units();
      allocate(MemoryClass::gradients, root_bytes_after_[left]);
    });
    for (auto root = roots_.rbegin(); root != roots_.rend(); ++root) {
      reshard(*root);
      reduce(*root);
    }
    wait_for_reduction();
  }

  // A gradient is added to that of the part before, or begins another partial sum.
  void backward_without_reduction() {
    const int begun = begins_sum() ? 1 : 0;
    size_t left = order_.size();
    allocate(MemoryClass::gradients, begun * root_bytes_after_[left]);
    pass(Phase::backward, {order_.rbegin(), order_.rend()}, backward_window_, [&](size_t unit) {
      allocate(MemoryClass::gradients, begun * (gradient_bytes_[unit] + root_bytes_inside_[unit]));
      reshard(unit);
      allocate(MemoryClass::gradients, begun * root_bytes_after_[--left]);
    });
    for (const size_t root : roots_)
      reshard(root);
  }

  Sum sum() const override {
    if (!arrangement_.turns_first) return {MemoryClass::sharded_gradients, trainable_bytes_};
    return {MemoryClass::gradients,
            std::accumulate(gradient_bytes_.begin(), gradient_bytes_.end(), int64_t{})};
  }

  void reduce_last() override {
    for (const auto& units : {order_, roots_})
      for (auto unit = units.rbegin(); unit != units.rend(); ++unit)
        reduce(*unit);
    wait_for_reduction();
  }

  void update() override {
    if (config_.step_in_backward) step_reduced_units();
    allocate_state();
  }
  void step_reduced_units() {
    for (size_t unit = 0; unit < layout_.units.size(); ++unit) {
      if (!has_gradient_[unit]) continue;
      allocate_state(state_of_unit_[unit]);
      allocate(MemoryClass::sharded_gradients, -shard_bytes(unit));
      has_gradient_[unit] = false;
    }
  }

  // The units compute in this order, while up to `window` units that come next are on their way.
  template <typename Then>
  void pass(Phase phase, const std::vector<size_t>& order, size_t window, const Then& then) {
    std::vector<size_t> read;
    std::ranges::copy_if(order, std::back_inserter(read), [&](size_t unit) {
      return phase == Phase::forward || !layout_.unread_in_backward.contains(unit);
    });
    size_t begun = 0;  // of those
    for (const size_t unit : order) {
      if (begun < read.size() && read[begun] == unit) {
        unshard(unit);
        gather(read, ++begun, window);
      }
      add(Schedule::Compute{unit, phase});
      then(unit);
    }
  }

  // Issues the all-gathers of the `count` units of `order` from `begin` on.
  void gather(const std::vector<size_t>& order, size_t begin, size_t count) {
    for (size_t i = begin; i < std::min(begin + count, order.size()); ++i) {
      auto& gather = gathers_[order[i]];
      if (gather) continue;
      allocate(MemoryClass::gathered, gathered_bytes(order[i]));
      gather = issue(Operation::all_gather, order[i], precision_[order[i]].param_bytes());
    }
  }
  void unshard(size_t unit) {
    gather({unit}, 0, 1);
    wait(*gathers_[unit]);
  }
  void reshard(size_t unit) {
    if (!gathers_[unit]) return;
    gathers_[unit].reset();
    allocate(MemoryClass::gathered, -gathered_bytes(unit));
  }

  // Moves the gradients into a flat one. One reduction is under way at a time.
  void reduce(size_t unit) {
    if (!layout_.units[unit].trainable) return;
    wait_for_reduction();
    allocate(MemoryClass::gradients, reduced_bytes(unit));
    allocate(MemoryClass::gradients, -gradient_bytes_[unit]);
    allocate(MemoryClass::sharded_gradients, shard_bytes(unit));
    reduction_ = {unit, issue(Operation::reduce_scatter, unit, precision_[unit].reduce_bytes())};
  }
  void wait_for_reduction() {
    if (!reduction_) return;
    const auto [unit, issued] = *reduction_;
    wait(issued);
    if (arrangement_.replicas > 1) wait(sum_over_replicas(unit));
    allocate(MemoryClass::gradients, -reduced_bytes(unit));
    if (has_gradient_[unit]) allocate(MemoryClass::sharded_gradients, -shard_bytes(unit));
    has_gradient_[unit] = true;
    reduction_.reset();
  }

  size_t issue(Operation operation, size_t unit, int64_t element_bytes) {
    const int64_t numel = layout_.units[unit].padded_numel;
    return add(Schedule::Issue{
        operation, numel, element_bytes, arrangement_.shards, /*in_arena=*/true, unit, {}});
  }
  size_t sum_over_replicas(size_t unit) {
    const int64_t numel = layout_.units[unit].padded_numel / arrangement_.shards;
    return add(Schedule::Issue{Operation::all_reduce,
                               numel,
                               kElement,
                               arrangement_.replicas,
                               /*in_arena=*/true,
                               unit,
                               {}});
  }

  int64_t gathered_bytes(size_t unit) const {
    return layout_.units[unit].padded_numel * precision_[unit].param_bytes();
  }
  int64_t reduced_bytes(size_t unit) const {
    return layout_.units[unit].padded_numel * precision_[unit].reduce_bytes();
  }
  int64_t shard_bytes(size_t unit) const {
    return layout_.units[unit].padded_numel * kElement / layout_.world_size;
  }

  // Paints blocks of kAlignment elements with their group: a piece is a run of one colour.
  void add_state_of_shard(size_t unit) {
    std::vector<std::optional<size_t>> blocks(
        static_cast<size_t>(layout_.units[unit].padded_numel / kAlignment));
    for (const auto& parameter : layout_.parameters) {
      if (parameter.unit != unit || !parameter.trainable) continue;
      std::fill_n(blocks.begin() + parameter.offset / kAlignment, padded(parameter) / kAlignment,
                  group_of(parameter.name, groups_));
    }
    const size_t count = blocks.size() / static_cast<size_t>(layout_.world_size);
    const size_t begin = count * static_cast<size_t>(shard_);
    const int64_t before = state_bytes();
    for (size_t i = begin; i < begin + count; ++i) {
      if (blocks[i]) add_state(kAlignment, i == begin || blocks[i] != blocks[i - 1]);
    }
    state_of_unit_[unit] = state_bytes() - before;
  }

  const int shard_;  // of every unit, that this rank holds
  const std::vector<ParameterGroup> groups_{config_.parameter_groups()};
  // Units on their way.
  const size_t forward_window_{static_cast<size_t>(config_.limit_in_forward() - 1)};
  const size_t backward_window_{static_cast<size_t>(config_.limit_in_backward() - 1)};
  std::vector<size_t> roots_;                    // the root's units: at most two
  std::vector<size_t> order_;                    // of forward, without the root's
  std::vector<MixedPrecisionPolicy> precision_;  // by unit
  std::vector<int64_t> gradient_bytes_;          // by unit
  std::vector<bool> has_gradient_;               // by unit: sharded
  std::vector<int64_t> state_of_unit_;           // by unit: bytes of its optimizer's
  int64_t trainable_bytes_{};                    // of the shards of trainable units
  // Of the root's gradients, those of its layers that come after so many units in forward, hence
  // before them in backward; and by unit those of parameters inside the unit's module.
  std::vector<int64_t> root_bytes_after_, root_bytes_inside_;
  // From this place of order_ on, the input of a unit's module needs a gradient; so it comes back.
  size_t first_with_gradient_{std::numeric_limits<size_t>::max()};
  std::vector<std::optional<size_t>> gathers_;  // by unit: the Issue that gathered it, or none
  std::optional<std::pair<size_t, size_t>> reduction_;  // under way: the unit and its Issue
};

// single and ddp: whole parameters, and buckets of gradients from backward to the optimizer.
class ReplicaStep : public ScheduledStep {
 public:
  using ScheduledStep::ScheduledStep;

 private:
  void hold() override {
    for (const auto& parameter : layout_.parameters) {
      const MixedPrecisionPolicy precision = config_.precision_of(parameter.name);
      allocate(MemoryClass::gathered, padded(parameter) * precision.param_bytes());
      if (precision.rounds_parameters())
        allocate(MemoryClass::shards, padded(parameter) * kElement);
      if (!parameter.trainable) continue;
      trainable_.push_back(padded(parameter));
      add_state(padded(parameter), 1);
    }
  }
  int parts_of_a_rank() const override {
    return config_.mode == "ddp" ? arrangement_.turns : arrangement_.parts();
  }
  // single adds the gradients of a part to a sum that is there, or they begin another one. ddp has
  // to reduce them before, unless that is done once, after the last part.
  void backward() override {
    if (begins_sum()) allocate(MemoryClass::gradients, sum().bytes);
    if (reduces_each()) reduce_buckets();
  }
  Sum sum() const override {
    return {MemoryClass::gradients,
            kElement * std::accumulate(trainable_.begin(), trainable_.end(), int64_t{})};
  }
  const Arrangement& order() const override {
    return config_.mode == "ddp" ? turns_ : arrangement_;
  }
  bool puts_aside() const override {
    return reduces_each() ? part_ > 0 : ScheduledStep::puts_aside();
  }
  bool reduces_each() const { return config_.mode == "ddp" && !arrangement_.turns_first; }
  void reduce_last() override {
    if (config_.mode == "ddp") reduce_buckets();
  }
  void reduce_buckets() {
    std::vector<size_t> reductions;
    for (const int64_t numel : gradient_buckets(trainable_, kDdpBuckets).numels)
      reductions.push_back(add(Schedule::Issue{Operation::all_reduce,
                                               numel,
                                               kElement,
                                               arrangement_.ranks(),
                                               /*in_arena=*/true,
                                               {},
                                               {}}));
    for (const size_t reduction : reductions)
      wait(reduction);
  }

  std::vector<int64_t> trainable_;  // [elements] with padding, of each trainable parameter
};

}  // namespace

Schedule schedule(const TrainConfig& config, const ShardLayout& layout, int rank, bool first) {
  if (config.mode == "fsdp") return ShardedStep(config, layout, rank, first).build();
  return ReplicaStep(config, layout, first).build();
}

}  // namespace fsdp
