#include <config/batch_partition.h>
#include <optim/gradient_buckets.h>
#include <prediction/scheduled_step.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace fsdp {
namespace {

int64_t padded(const ShardLayout::Parameter& parameter) {
  return round_up(parameter.numel, kAlignment);
}

// A step of --mode fsdp. At each event of a ModelTrace it adds the actions that the hooks of tasks
// 3, 4 and 6 cause.
class ShardedStep : public ScheduledStep {
 public:
  ShardedStep(const TrainConfig& config, const ShardLayout& layout, int rank, bool first,
              const ModelTraces& traces)
      : ScheduledStep(config, layout, rank, first, traces),
        shard_(rank % layout.world_size),
        precision_(layout.units.size()),
        units_(layout.units.size()) {
    for (size_t unit = 0; unit < units_.size(); ++unit)
      if (layout.units[unit].trainable) trainable_bytes_ += shard_bytes(unit);
    // The mixed-precision policy is equal for all parameters of a unit.
    for (const auto& parameter : layout.parameters)
      precision_[parameter.unit] = config.precision.policy_of(parameter.name);
    for (const auto& event : traces.begins.forward)
      if (event.kind == Kind::pre_forward && !root(event.index)) order_.push_back(event.index);
    const auto holds = [](const auto& outer, const auto& inner) {
      return !outer.root && inner.name.starts_with(outer.name + ".");
    };
    schedule_.in_order =
        traces.has_activations ||
        std::adjacent_find(layout.units.begin(), layout.units.end(), holds) == layout.units.end();
  }

 private:
  using Kind = ModelTrace::Kind;
  struct Unit {
    // Index in the schedule of the action that issues the unit's all-gather; empty: the unit is
    // resharded.
    std::optional<size_t> gather;
    // Number of bytes of the .grad of all parameters of the unit together.
    int64_t unsharded_gradients{};
    // Index of a parameter -> number of bytes of the parameter's .grad in param_dtype.
    std::map<size_t, int64_t> narrow_gradients{};
    bool has_gradient{};  // whether the unit's sharded gradient exists
    bool reduced{};       // whether the unit's reduce-scatter was issued in this backward pass
    // `state`: number of bytes of the optimizer's state of this unit. `for_update`: the most bytes
    // that the update of one piece of the unit allocates temporarily (see add_pieces()).
    int64_t state{}, for_update{};
  };
  bool root(size_t unit) const { return layout_.units[unit].root; }

  void hold() override {
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      allocate(MemoryClass::shards, shard_bytes(unit), unit);
      if (precision_[unit].rounds_parameters())
        allocate(MemoryClass::shards, gathered_bytes(unit) / layout_.world_size, unit);
      add_pieces(unit);
    }
  }

  void at(const ModelTrace::Event& event) override {
    switch (event.kind) {
      case Kind::pre_forward:
        return pre_forward(event.index);
      case Kind::post_forward:
        return post_forward(event);
      case Kind::pre_backward:
        return pre_backward(event.index);
      case Kind::gradient:
        return add_gradient(event.index, event.gradient_bytes);
      case Kind::post_backward:
        if (event.last) post_backward(event.index);
        if (config_.optimizer.step_in_backward && !root(event.index)) step_reduced_units();
        return;
      case Kind::root_unread:
        return reshard_root();
      case Kind::end:
        return end_backward();
      case Kind::none:
        return;
    }
  }

  // Adds to the schedule the actions that unshard the unit and prefetch the next units. The forward
  // begins with the units of the root. Prefetching begins after the last unit of the root. The
  // first forward of a run prefetches nothing, because no order of the units is known yet. If the
  // run evaluates before its first step, this evaluation is the first forward, so all forwards of
  // the step prefetch.
  void pre_forward(size_t unit) {
    const bool is_first =
        first_ && microbatch_ == 0 && !(training_ && config_.evaluates_before_training());
    const size_t window = is_first ? 0 : forward_window_;
    unshard(unit);
    if (root(unit)) {
      forwards_ = 0;  // a forward begins; in an evaluation no backward lies between two forwards
      if (unit + 1 == units_.size() || !root(unit + 1)) gather(order_, 0, window);
      return;
    }
    gather(order_, ++forwards_, window);
  }
  void post_forward(const ModelTrace::Event& event) {
    const bool reshards = config_.sharding.reshard_after_forward && !root(event.index);
    if (reshards || !training_) reshard(event.index);
    if (!root(event.index) && event.last) units_in_backward_.push_back(event.index);
  }

  void begin_backward() override {
    forwards_ = 0;
    if (!starts_new_partial_sum()) return;
    for (Unit& unit : units_) {
      unit.has_gradient = false;
      unit.unsharded_gradients = 0;
      unit.narrow_gradients.clear();
    }
  }
  void pre_backward(size_t unit) {
    if (!layout_.no_unshard_in_backward.contains(unit)) unshard(unit);
    const auto found = std::find(units_in_backward_.rbegin(), units_in_backward_.rend(), unit);
    if (found == units_in_backward_.rend()) return;
    units_in_backward_.erase(found.base() - 1, units_in_backward_.end());
    gather({units_in_backward_.rbegin(), units_in_backward_.rend()}, 0, backward_window_);
  }
  void add_gradient(size_t parameter, int64_t bytes) {
    const size_t unit = layout_.parameters[parameter].unit;
    allocate(MemoryClass::gradients, bytes, unit);
    units_[unit].unsharded_gradients += bytes;
    if (bytes > 0) units_[unit].narrow_gradients[parameter] += bytes;
  }
  // Adds to the schedule what FlatParameter::widen_gradients() allocates and frees: that function
  // converts one gradient after another, so only one gradient exists in both dtypes at a time.
  void widen_gradients(size_t unit) {
    const MixedPrecisionPolicy& precision = precision_[unit];
    const auto wide = static_cast<int64_t>(c10::elementSize(precision.accumulate_dtype()));
    for (const auto& [parameter, narrow] : std::exchange(units_[unit].narrow_gradients, {})) {
      if (wide == precision.param_bytes()) continue;
      const int64_t widened = narrow / precision.param_bytes() * wide;
      allocate(MemoryClass::gradients, widened, unit);
      allocate(MemoryClass::gradients, -narrow, unit);
      units_[unit].unsharded_gradients += widened - narrow;
    }
  }
  void post_backward(size_t unit) {
    reshard(unit);
    if (partition_.reduce_last) return widen_gradients(unit);
    reduce(unit);
    units_[unit].reduced = true;
  }
  void reshard_root() {
    for (size_t unit = 0; unit < units_.size(); ++unit)
      if (root(unit)) reshard(unit);
  }
  void end_backward() {
    for (size_t unit = units_.size(); unit-- > 0;) {
      if (!units_[unit].reduced) post_backward(unit);
      reshard(unit);
      units_[unit].reduced = false;
    }
    units_in_backward_.clear();
    wait_for_reduction();
  }

  Sum sum() const override {
    if (!partition_.reduce_last) return {MemoryClass::sharded_gradients, trainable_bytes_};
    int64_t bytes = 0;
    for (const Unit& unit : units_)
      bytes += unit.unsharded_gradients;
    return {MemoryClass::gradients, bytes};
  }

  void reduce_last() override {
    for (size_t unit = units_.size(); unit-- > 0;)
      reduce(unit);
    wait_for_reduction();
  }

  // Adds to the schedule the actions with which a rank computes the norm of the gradients for
  // --clip. The rank finds the largest magnitude unless norm_type is 2, and computes the exact sum
  // unless norm_type is infinite. The temporary memory is for the exact sum of one unit, which is
  // added to the exact sum of all units.
  void clip() override {
    constexpr int64_t kSum = kDigits * kScalar;
    const double norm_type = config_.optimizer.norm_type;
    activations(kSum);
    if (norm_type != 2) find_largest_magnitude();
    if (std::isfinite(norm_type)) {
      allocate_temporarily(kSum);
      call_on_scalars(Operation::all_reduce, kDigits, partition_.shards, shard_, "norm");
    }
    activations(-kSum);
  }
  // Adds to the schedule the actions with which a rank finds the largest magnitude of its own
  // gradients. For this it allocates and frees five fp32 numbers and one fp64 number. Then it
  // gathers the largest magnitudes of all ranks.
  void find_largest_magnitude() {
    const int ranks = partition_.shards;
    activations(kScalar);
    allocate_temporarily(5 * kElement + kScalar);
    activations(ranks * kScalar);
    call_on_scalars(Operation::all_gather, ranks, ranks, shard_, "norm");
    allocate_temporarily(kScalar);
    activations(-(1 + ranks) * kScalar);
  }

  void update() override {
    if (config_.optimizer.step_in_backward) return step_reduced_units();
    ScheduledStep::update();
    for (const MatrixRound& round : matrix_rounds(layout_, groups_, partition_.ranks()))
      update_matrices(round);
  }
  // Adds to the schedule the actions of Muon's update of the matrices of a round: the rank gathers
  // the averaged gradients of the matrices, orthogonalizes the matrices that it owns, and sends the
  // updates to the ranks that hold the shards.
  void update_matrices(const MatrixRound& round) {
    std::vector<size_t> gathered;
    for (const UnitMatrices& unit : round) {
      activations(shard_bytes(unit.unit));
      compute_on_pieces(unit);
      allocate(MemoryClass::gathered, kElement * layout_.units[unit.unit].padded_numel, unit.unit);
      gathered.push_back(issue(Operation::all_gather, unit.unit, kElement));
    }
    std::vector<size_t> returned;
    for (size_t i = 0; i < round.size(); ++i) {
      wait(gathered[i]);
      for (const OwnedMatrix& matrix : round[i].matrices)
        if (matrix.owner == rank_) orthogonalize(matrix);
      returned.push_back(issue(Operation::reduce_scatter, round[i].unit, kElement));
    }
    for (size_t i = 0; i < round.size(); ++i) {
      const size_t unit = round[i].unit;
      wait(returned[i]);
      if (partition_.replicas > 1) wait(sum_over_replicas(unit));
      allocate(MemoryClass::gathered, -kElement * layout_.units[unit].padded_numel, unit);
      compute_on_pieces(round[i]);
      activations(-shard_bytes(unit));
    }
  }
  // Adds to the schedule what average_gradient() and apply_orthogonal_update() allocate and free
  // for this rank's pieces of the matrices: each function needs the tensor of one number.
  void compute_on_pieces(const UnitMatrices& unit) {
    const int64_t numel = layout_.units[unit.unit].padded_numel / layout_.world_size;
    const int64_t begin = numel * shard_, end = begin + numel;
    const auto is_here = [&](const OwnedMatrix& matrix) {
      return matrix.offset < end && begin < matrix.offset + round_up(matrix.numel(), kAlignment);
    };
    if (std::ranges::any_of(unit.matrices, is_here)) allocate_temporarily(kNumber);
  }
  void step_reduced_units() {
    for (size_t i = 0; i < units_.size(); ++i) {
      Unit& unit = units_[i];
      if (!unit.has_gradient) continue;
      allocate_state(unit.state);
      allocate_temporarily(unit.for_update);
      allocate(MemoryClass::sharded_gradients, -shard_bytes(i), i);
      unit.has_gradient = false;
    }
  }

  // Adds to the schedule the issues of the all-gathers of order[begin] and the units after it in
  // `order`, of at most `count` units. Skips units that are gathered already.
  void gather(const std::vector<size_t>& order, size_t begin, size_t count) {
    for (size_t i = begin; i < std::min(begin + count, order.size()); ++i) {
      auto& gather = units_[order[i]].gather;
      if (gather) continue;
      allocate(MemoryClass::gathered, gathered_bytes(order[i]), order[i]);
      gather = issue(Operation::all_gather, order[i], precision_[order[i]].param_bytes());
    }
  }
  void unshard(size_t unit) {
    gather({unit}, 0, 1);
    wait(*units_[unit].gather);
  }
  void reshard(size_t unit) {
    if (!units_[unit].gather) return;
    wait(*units_[unit].gather);
    units_[unit].gather.reset();
    allocate(MemoryClass::gathered, -gathered_bytes(unit), unit);
  }

  // Adds to the schedule the actions that move the gradients of a unit into a flat gradient and
  // issue its reduce-scatter. First it adds the wait for the reduce-scatter of the previous unit,
  // because only one reduce-scatter is under way at a time.
  void reduce(size_t unit) {
    if (!layout_.units[unit].trainable) return;
    wait_for_reduction();
    allocate(MemoryClass::gradients, reduced_bytes(unit), unit);
    allocate(MemoryClass::gradients, -std::exchange(units_[unit].unsharded_gradients, 0), unit);
    allocate(MemoryClass::sharded_gradients, shard_bytes(unit), unit);
    reduction_ = {unit, issue(Operation::reduce_scatter, unit, precision_[unit].reduce_bytes())};
  }
  void wait_for_reduction() {
    if (!reduction_) return;
    const auto [unit, issued] = *reduction_;
    wait(issued);
    if (partition_.replicas > 1) wait(sum_over_replicas(unit));
    allocate(MemoryClass::gradients, -reduced_bytes(unit), unit);
    allocate_temporarily(kNumber);
    if (units_[unit].has_gradient)
      allocate(MemoryClass::sharded_gradients, -shard_bytes(unit), unit);
    units_[unit].has_gradient = true;
    reduction_.reset();
  }

  size_t issue(Operation operation, size_t unit, int64_t element_bytes) {
    const int64_t numel = layout_.units[unit].padded_numel;
    return add(Schedule::Issue{operation, numel, element_bytes, partition_.shards, 1, shard_,
                               /*in_arena=*/true, unit});
  }
  size_t sum_over_replicas(size_t unit) {
    const int64_t numel = layout_.units[unit].padded_numel / partition_.shards;
    return add(Schedule::Issue{Operation::all_reduce, numel, kElement, partition_.replicas,
                               partition_.shards, rank_ / partition_.shards,
                               /*in_arena=*/true, unit});
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

  // Counts the optimizer's state of the pieces of a unit. A piece is a run of neighbouring
  // parameters, with their padding, that lies in this rank's shard and belongs to one parameter
  // group.
  void add_pieces(size_t unit) {
    const int64_t count = layout_.units[unit].padded_numel / layout_.world_size;
    const int64_t shard = count * shard_;
    const int64_t state_before = state_bytes();
    // For each parameter group: where the current run of neighbouring parameters begins and ends in
    // the unit.
    std::vector<std::pair<int64_t, int64_t>> runs(groups_.size());
    const auto add_run = [&](size_t group) {
      const auto [begin, end] = std::exchange(runs[group], {});
      if (begin == end) return;
      const int64_t needed = add_piece(end - begin, groups_[group].options);
      units_[unit].for_update = std::max(units_[unit].for_update, needed);
    };
    for (const auto& parameter : layout_.parameters) {
      if (parameter.unit != unit || !parameter.trainable) continue;
      const int64_t begin = std::max(parameter.offset, shard);
      const int64_t end = std::min(parameter.offset + padded(parameter), shard + count);
      if (begin >= end) continue;
      const size_t group = group_of(parameter.name, groups_);
      if (runs[group].second != begin) add_run(group);
      if (runs[group].second != begin) runs[group].first = begin;
      runs[group].second = end;
    }
    for (size_t group = 0; group < runs.size(); ++group)
      add_run(group);
    units_[unit].state = state_bytes() - state_before;
  }

  const int shard_;  // index of this rank's shard in every unit
  // How many units are gathered ahead of the running one, in forward and in backward.
  const size_t forward_window_{static_cast<size_t>(config_.sharding.limit_in_forward() - 1)};
  const size_t backward_window_{static_cast<size_t>(config_.sharding.limit_in_backward() - 1)};
  std::vector<MixedPrecisionPolicy> precision_;  // the mixed-precision policy of each unit
  std::vector<Unit> units_;
  // The units, without the root's, in the order of their calls in a forward.
  std::vector<size_t> order_;
  size_t forwards_{};  // how many units of order_ have begun their call in this forward
  // Units to unshard again in backward, in the order of their forward.
  std::vector<size_t> units_in_backward_;
  int64_t trainable_bytes_{};  // number of bytes of this rank's shards of trainable units
  // The reduce-scatter under way: the index of its unit, and the index in the schedule of the
  // action that issued it; empty: no reduce-scatter is under way.
  std::optional<std::pair<size_t, size_t>> reduction_;
};

// A step of --mode single or ddp. The parameters are whole, and the buckets of gradients are alive
// from the first backward to the end of the step.
class ReplicaStep : public ScheduledStep {
 public:
  using ScheduledStep::ScheduledStep;

 private:
  void hold() override {
    for (const auto& parameter : layout_.parameters) {
      const MixedPrecisionPolicy precision = config_.precision.policy_of(parameter.name);
      allocate(MemoryClass::gathered, padded(parameter) * precision.param_bytes());
      if (precision.rounds_parameters())
        allocate(MemoryClass::shards, padded(parameter) * kElement);
      places_.push_back(trainable_.size());
      if (!parameter.trainable) continue;
      trainable_.push_back(padded(parameter));
      add_piece(padded(parameter), groups_[group_of(parameter.name, groups_)].options);
    }
    buckets_ = gradient_buckets(trainable_, kDdpBuckets);
  }
  int microbatches_of_a_rank() const override {
    return config_.ranks.mode == Mode::ddp ? partition_.accumulation_steps
                                           : partition_.microbatches();
  }
  // Adds to the schedule the allocation of buckets if the gradients of the microbatch begin a new
  // sum. In --mode single, the gradients begin a new sum or are added to the existing one. In
  // --mode ddp, the gradients of every microbatch begin a new sum, because ddp reduces them before
  // it adds them to others, unless it reduces once, after the last microbatch.
  void begin_backward() override {
    if (begins_sum()) allocate(MemoryClass::gradients, sum().bytes);
    waiting_.assign(buckets_.numels.size(), 0);
    for (const auto& place : buckets_.places)
      ++waiting_[place.bucket];
    reductions_.clear();
  }
  void at(const ModelTrace::Event& event) override {
    if (!reduces_each()) return;
    if (event.kind == ModelTrace::Kind::end) return reduce_buckets();
    if (event.kind != ModelTrace::Kind::gradient) return;
    --waiting_[buckets_.places[places_[event.index]].bucket];
    while (reductions_.size() < waiting_.size() && waiting_[reductions_.size()] == 0)
      reduce_next_bucket();
  }
  Sum sum() const override {
    return {MemoryClass::gradients,
            kElement * std::accumulate(trainable_.begin(), trainable_.end(), int64_t{})};
  }
  const BatchPartition& order() const override {
    return config_.ranks.mode == Mode::ddp ? partition_of_rank_ : partition_;
  }
  bool starts_new_partial_sum() const override {
    return reduces_each() ? microbatch_ > 0 : ScheduledStep::starts_new_partial_sum();
  }
  bool reduces_each() const { return config_.ranks.mode == Mode::ddp && !partition_.reduce_last; }
  void reduce_last() override {
    reductions_.clear();
    if (config_.ranks.mode == Mode::ddp) reduce_buckets();
  }
  void reduce_next_bucket() {
    const int64_t numel = buckets_.numels[reductions_.size()];
    reductions_.push_back(add(Schedule::Issue{Operation::all_reduce, numel, kElement,
                                              partition_.ranks(), 1, rank_, /*in_arena=*/true}));
  }
  void reduce_buckets() {
    while (reductions_.size() < buckets_.numels.size())
      reduce_next_bucket();
    for (const size_t reduction : reductions_)
      wait(reduction);
  }
  void update() override {
    ScheduledStep::update();
    for (const MatrixRound& round : matrix_rounds(layout_, groups_, /*ranks=*/1))
      for (const UnitMatrices& unit : round)
        for (const OwnedMatrix& matrix : unit.matrices)
          update_matrix(matrix);
  }
  void update_matrix(const OwnedMatrix& matrix) {
    const int64_t update = kElement * round_up(matrix.numel(), kAlignment);
    activations(update);
    orthogonalize(matrix);
    activations(-update);
  }
  // p_norm() adds exact sums out of place, so each addition allocates its result.
  void clip() override {
    constexpr int64_t kSum = kDigits * kScalar;
    allocate_temporarily(config_.optimizer.norm_type == 2 ? 3 * kSum : kScalar + 2 * kSum);
  }
  std::vector<int64_t> trainable_;  // number of elements of each trainable parameter, with padding
  // For each parameter: how many trainable parameters come before it in the layout.
  std::vector<size_t> places_;
  GradientBuckets buckets_;
  // For each bucket: how many of its parameters have no gradient in this backward pass yet.
  std::vector<int64_t> waiting_;
  // The indices of the actions that have issued the all-reduces of the first buckets, in the order
  // of the buckets.
  std::vector<size_t> reductions_;
};

}  // namespace

Schedule schedule(const TrainConfig& config, const ShardLayout& layout, int rank, bool first,
                  const std::optional<ModelTraces>& given) {
  const ModelTraces traces = given ? *given : chain_of(config, layout);
  if (config.ranks.mode == Mode::fsdp)
    return ShardedStep(config, layout, rank, first, traces).build();
  return ReplicaStep(config, layout, rank, first, traces).build();
}

}  // namespace fsdp
