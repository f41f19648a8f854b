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

inline constexpr int64_t kElement = 4;  // bytes of an fp32
inline constexpr int64_t kScalar = 8;   // bytes of an fp64: the loss, and the terms of a norm
// [bytes] of a number that divides a tensor or is added to it: as given, and in the tensor's dtype.
inline constexpr int64_t kNumber = kScalar + kElement;

// The part of a step that all modes share. A mode overrides hold(), and at(), which does what the
// mode does at an event of a trace.
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
    // A run that loads parameters calls Strategy::state() before the first step. That call
    // allocates the state of the optimizer.
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
    // A tensor with the number of microbatches, by which gradients are divided.
    if (training_) allocate_temporarily(kNumber);
    // Allocates the sums of losses of this rank and of all ranks; frees the losses.
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
  virtual void hold() = 0;  // allocates what is alive during the whole step
  virtual int microbatches_of_a_rank() const { return partition_.accumulation_steps; }
  // The memory of the running sum of a rank's gradients. The gradients of its microbatches are
  // added as a tree, in the order of order().
  struct Sum {
    MemoryClass cls;
    int64_t bytes;
  };
  virtual Sum sum() const = 0;
  virtual const BatchPartition& order() const { return partition_of_rank_; }
  // Returns whether microbatch microbatch_ begins a new partial sum. If so, the partial sum of the
  // earlier microbatches is kept beside it.
  virtual bool starts_new_partial_sum() const {
    return microbatch_ > 0 &&
           order().partial_sums(microbatch_ + 1) > order().partial_sums(microbatch_);
  }
  bool begins_sum() const { return microbatch_ == 0 || starts_new_partial_sum(); }
  virtual void begin_backward() {}  // called before the backward of microbatch_
  virtual void at(const ModelTrace::Event& /*event*/) {}  // what the mode does at the event
  // Called after the last microbatch if gradients are reduced once: reduces the sum of all of them.
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
  // Issues a call on `count` fp64 numbers that serves no unit, and waits for it.
  void call_on_scalars(Operation operation, int64_t count, int ranks, int place,
                       const char* label) {
    wait(add(Schedule::Issue{
        operation, count, kScalar, ranks, 1, place, /*in_arena=*/false, {}, label}));
  }

  // Adds `bytes` to the activations: memory that an operation outside the model allocates, or frees
  // if negative.
  void activations(int64_t bytes) {
    if (traces_.has_activations) allocate(MemoryClass::other, bytes);
  }
  // Adds `bytes` to the activations and frees them at once.
  void allocate_temporarily(int64_t bytes) {
    activations(bytes);
    activations(-bytes);
  }

  // Counts the optimizer's state of a piece of `elements` parameter elements, which is updated by
  // itself: for AdamW two moments of each element and a step count, for Muon one moment and a step
  // count. Returns the bytes that an update of the piece allocates temporarily: for SGD a decayed
  // gradient, otherwise the number that is added to a step count.
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
  // Allocates and frees what orthogonalize() allocates and frees.
  void orthogonalize(const OwnedMatrix& matrix) {
    allocate_temporarily(orthogonalize_bytes(matrix.rows, matrix.columns));
  }
  int64_t state_bytes() const { return state_bytes_; }  // not allocated yet
  // Allocates the state of the optimizer that is not allocated yet, but at most `bytes` of it.
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
  const BatchPartition partition_of_rank_{
      .accumulation_steps = partition_.accumulation_steps};  // the microbatches of one rank
  int microbatch_{};                                         // index of a microbatch of this rank
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
  // Call this after microbatch microbatch_ was computed. Frees the partial sums that were added to
  // the running sum. A sum in a file takes no memory.
  void free_added_sums() {
    if (in_files()) return;
    const auto [cls, bytes] = sum();
    const int before = order().partial_sums(microbatch_) + (begins_sum() ? 1 : 0);
    allocate(cls, -(before - order().partial_sums(microbatch_ + 1)) * bytes);
  }

  void compute(Schedule::Compute part) {
    const int64_t losses =
        microbatch_ * traces_.begins.left;  // [bytes] of the earlier microbatches
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

  std::optional<size_t> running_;  // the unit whose module runs
  int64_t state_bytes_{};
  int64_t for_update_{};  // [bytes] that the update of a piece allocates temporarily, at most
};

}  // namespace fsdp
