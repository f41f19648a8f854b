#pragma once

#include <offload/resident_bytes.h>
#include <optim/exact_sum.h>
#include <optim/matrix_owners.h>
#include <optim/muon.h>
#include <optim/update_rule.h>
#include <prediction/schedule.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace fsdp {

inline constexpr int64_t kElement = 4;  // number of bytes of an fp32 number
// Number of bytes of an fp64 number: the loss, and the terms of a norm.
inline constexpr int64_t kScalar = 8;
// Number of bytes that torch allocates for a number that divides a tensor or is added to it: the
// number in fp64, and the number in the tensor's dtype, fp32.
inline constexpr int64_t kNumber = kScalar + kElement;

// Builds the Schedule of a step. This class has the part that all modes share. A class for a mode
// overrides the virtual functions; in at() it adds what the mode does at an event of a ModelTrace.
class ScheduledStep {
 public:
  ScheduledStep(const TrainConfig& config, const ShardLayout& layout, int rank, bool first,
                const ModelTraces& traces)
      : config_(config), layout_(layout), rank_(rank), first_(first), traces_(traces) {
    schedule_.has_activations = traces.has_activations;
  }
  virtual ~ScheduledStep() = default;

  Schedule build() {
    hold();
    allocate(MemoryClass::optimizer_state,
             resident_bytes(schedule_.state_file_bytes, config_.memory.offload_resident));
    // The state of the optimizer is allocated before a step that is not the first one of the run.
    // It is allocated before the first step, too, if the run loads parameters, because such a run
    // calls Strategy::state() first, which allocates it.
    if (!first_ || config_.checkpoint.first_step > 0 || !config_.model.init.empty())
      allocate_state();
    const int parts = microbatches_of_a_rank();
    for (microbatch_ = 0; microbatch_ < parts; ++microbatch_) {
      if (training_ && starts_new_partial_sum()) push_partial_sum();
      const bool begins = begins_sum() || traces_.adds.forward.empty();
      const ModelTrace& trace = begins ? traces_.begins : traces_.adds;
      enter(Phase::forward);
      compute(
          {.peak = microbatch_ == 0 ? trace.begin_peak : trace.begin, .activations = trace.begin});
      for (const auto& event : trace.forward)
        play(event);
      if (!training_) continue;
      enter(Phase::backward);
      begin_backward();
      for (const auto& event : trace.backward)
        play(event);
      free_added_sums();
    }
    const bool one_sum = config_.ranks.mode == Mode::single || partition_.reduce_last;
    const int64_t sums = one_sum ? 1 : parts;
    if (training_ && partition_.reduce_last) reduce_last();
    // Adds to the schedule the allocation of the tensor that holds the number of microbatches, by
    // which the gradients are divided.
    if (training_) allocate_temporarily(kNumber);
    // Adds to the schedule the allocation of the sums of this rank's losses and of the sums over
    // all ranks, and the freeing of the losses of the microbatches.
    activations(2 * kScalar * sums - parts * traces_.begins.left);
    call_on_scalars(Operation::all_reduce, sums,
                    config_.ranks.mode == Mode::single ? 1 : partition_.ranks(), rank_, "metrics");
    if (training_) {
      enter(Phase::optimizer);
      if (config_.optimizer.clip || config_.precision.loss_scaler) clip();
      update();
    }
    return std::move(schedule_);
  }

 protected:
  // Adds to the schedule the allocations of the memory that is alive during the whole step.
  virtual void hold() = 0;
  virtual int microbatches_of_a_rank() const { return partition_.accumulation_steps; }
  // The memory class and the number of bytes of the running sum of a rank's gradients. The
  // gradients of the rank's microbatches are added as a tree, in the order of the BatchPartition
  // that order() returns.
  struct Sum {
    MemoryClass cls;
    int64_t bytes;
  };
  virtual Sum sum() const = 0;
  virtual const BatchPartition& order() const { return partition_of_rank_; }
  // Returns whether microbatch number microbatch_ of this rank begins a new partial sum. If it
  // does, the partial sum of the earlier microbatches is kept beside the new one.
  virtual bool starts_new_partial_sum() const {
    return microbatch_ > 0 &&
           order().partial_sums(microbatch_ + 1) > order().partial_sums(microbatch_);
  }
  bool begins_sum() const { return microbatch_ == 0 || starts_new_partial_sum(); }
  // Adds to the schedule what the mode does before the backward of microbatch number microbatch_.
  virtual void begin_backward() {}
  // Adds to the schedule what the mode does at an event of a ModelTrace.
  virtual void at(const ModelTrace::Event& /*event*/) {}
  // Adds to the schedule the reduction of the sum of all microbatches' gradients. Called after the
  // last microbatch if gradients are reduced once.
  virtual void reduce_last() {}
  virtual void clip() = 0;
  virtual void update() {
    allocate_state();
    allocate_temporarily(for_update_);
  }

  size_t add(const Schedule::Action& action) {
    schedule_.actions.push_back(action);
    return schedule_.actions.size() - 1;
  }
  void enter(Phase phase) { add(Schedule::Enter{phase}); }
  void allocate(MemoryClass cls, int64_t bytes, std::optional<size_t> unit = {}) {
    add(Schedule::Allocate{cls, bytes, unit});
  }
  void wait(size_t issued) { add(Schedule::Wait{issued}); }
  // Adds to the schedule the issue of a collective on `count` fp64 numbers that serves no unit, and
  // the wait for it.
  void call_on_scalars(Operation operation, int64_t count, int ranks, int place,
                       const char* label) {
    wait(add(Schedule::Issue{
        operation, count, kScalar, ranks, 1, place, /*in_arena=*/false, {}, label}));
  }

  // If the bytes of activations are known, adds to the schedule that an operation outside the model
  // allocates `bytes` of activations or, if `bytes` is negative, frees them.
  void activations(int64_t bytes) {
    if (traces_.has_activations) allocate(MemoryClass::other, bytes);
  }
  // Adds to the schedule that `bytes` of activations are allocated and freed at once.
  void allocate_temporarily(int64_t bytes) {
    activations(bytes);
    activations(-bytes);
  }

  // Counts the optimizer's state of a piece: `elements` neighbouring elements of parameters that
  // the optimizer treats as one tensor. For AdamW the state has two moments of each element and a
  // step count, for Muon one moment of each element and a step count. Returns the bytes that an
  // update of the piece allocates temporarily: for SGD a decayed gradient, otherwise the number
  // that is added to a step count.
  int64_t add_piece(int64_t elements, const OptimizerOptions& options) {
    int64_t needed = kNumber;
    if (options.kind == OptimizerOptions::Kind::sgd) {
      needed = options.weight_decay == 0 ? 0 : kElement * elements;
    } else {
      (in_files() ? schedule_.state_file_bytes : state_bytes_) +=
          options.moments_of_element() * kElement * elements;
      state_bytes_ += kElement;
    }
    for_update_ = std::max(for_update_, needed);
    return needed;
  }
  // Adds to the schedule what orthogonalize() of optim/muon.h allocates and frees when Muon updates
  // `matrix`.
  void orthogonalize(const OwnedMatrix& matrix) {
    allocate_temporarily(orthogonalize_bytes(matrix.rows, matrix.columns));
  }
  // Returns the number of bytes of the optimizer's state that is not allocated yet.
  int64_t state_bytes() const { return state_bytes_; }
  // Adds to the schedule the allocation of the part of the optimizer's state that is not allocated
  // yet, but of at most `bytes` bytes.
  void allocate_state(int64_t bytes = std::numeric_limits<int64_t>::max()) {
    bytes = std::min(bytes, state_bytes_);
    allocate(MemoryClass::optimizer_state, bytes);
    state_bytes_ -= bytes;
  }

  const TrainConfig& config_;
  const ShardLayout& layout_;
  const int rank_;
  const bool first_;
  const ModelTraces& traces_;
  const bool training_{config_.training.steps > 0};
  const std::vector<ParameterGroup> groups_{config_.optimizer.parameter_groups()};
  const BatchPartition partition_{config_.batch_partition()};
  // Partitions the microbatches of this rank only, as if it were the only rank.
  const BatchPartition partition_of_rank_{.accumulation_steps = partition_.accumulation_steps};
  int microbatch_{};  // index of the current microbatch among those of this rank
  Schedule schedule_;

 private:
  bool in_files() const { return !config_.memory.offload_dir.empty(); }
  void push_partial_sum() {
    if (!in_files()) return;
    const auto [cls, bytes] = sum();
    allocate(cls, -bytes);
    auto& most = schedule_.partial_sum_bytes;
    most = std::max(most, order().partial_sums(microbatch_) * bytes);
  }
  // Call this when microbatch number microbatch_ has been computed. Adds to the schedule the
  // freeing of the partial sums that were added to the running sum, unless they are in a file and
  // take no memory.
  void free_added_sums() {
    if (in_files()) return;
    const auto [cls, bytes] = sum();
    const int before = order().partial_sums(microbatch_) + (begins_sum() ? 1 : 0);
    allocate(cls, -(before - order().partial_sums(microbatch_ + 1)) * bytes);
  }

  void compute(Schedule::Compute part) {
    // Number of bytes of the losses of the earlier microbatches.
    const int64_t losses = microbatch_ * traces_.begins.left;
    part.peak += losses;
    part.activations += losses;
    add(part);
  }
  void play(const ModelTrace::Event& event) {
    compute({event.peak, event.activations, event.flops, event.time, running_});
    using Kind = ModelTrace::Kind;
    if (event.kind == Kind::pre_forward || event.kind == Kind::pre_backward) running_ = event.index;
    if (event.kind == Kind::post_forward || event.kind == Kind::post_backward) running_.reset();
    at(event);
  }

  std::optional<size_t> running_;  // the unit whose module runs; empty: the root's module
  int64_t state_bytes_{};
  // The most bytes that the optimizer's update of one piece (see add_piece()) allocates
  // temporarily.
  int64_t for_update_{};
};

}  // namespace fsdp
