#pragma once

#include <offload/state_file.h>
#include <optim/exact_sum.h>
#include <optim/update_rule.h>
#include <prediction/schedule.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace fsdp {

inline constexpr int64_t kElement = 4;  // bytes of an fp32
inline constexpr int64_t kScalar = 8;   // bytes of the loss and of what a norm is made of, fp64

// What the steps of all modes have in common: they differ in hold(), forward() and backward().
class ScheduledStep {
 public:
  ScheduledStep(const TrainConfig& config, const ShardLayout& layout, bool first)
      : config_(config), layout_(layout), first_(first) {}
  virtual ~ScheduledStep() = default;

  Schedule build() {
    hold();
    allocate(MemoryClass::optimizer_state,
             pinned_bytes(schedule_.state_file_bytes, config_.pinned));
    // What the parameters were loaded into is allocated before the first step.
    if (!first_ || config_.first_step > 0 || !config_.init.empty()) allocate_state();
    const int parts = parts_of_a_rank();
    for (part_ = 0; part_ < parts; ++part_) {
      if (training_ && puts_aside()) put_aside();
      enter(Phase::forward);
      forward();
      if (!training_) continue;
      enter(Phase::backward);
      backward();
      free_added_sums();
    }
    const bool single = config_.mode == "single";
    if (training_ && arrangement_.turns_first) reduce_last();
    reduce_scalars(single || arrangement_.turns_first ? 1 : parts,
                   single ? 1 : arrangement_.ranks(), "metrics");
    if (training_) {
      enter(Phase::optimizer);
      if ((config_.clip || config_.loss_scaler) && config_.mode == "fsdp") add_norm();
      update();
    }
    return std::move(schedule_);
  }

 protected:
  virtual void hold() = 0;  // allocates what is alive all the time
  virtual int parts_of_a_rank() const { return arrangement_.turns; }
  // What a rank adds the gradients of its parts to, as a tree of this order.
  struct Sum {
    MemoryClass cls;
    int64_t bytes;
  };
  virtual Sum sum() const = 0;
  virtual const Arrangement& order() const { return turns_; }
  // Whether part_ begins another sum than that of the parts before, which has to wait for it.
  virtual bool puts_aside() const {
    return part_ > 0 && order().partial_sums(part_ + 1) > order().partial_sums(part_);
  }
  bool begins_sum() const { return part_ == 0 || puts_aside(); }
  virtual void forward() {}  // of part_
  virtual void backward() = 0;
  virtual void reduce_last() {}  // the gradients of all parts, which backward() has left
  virtual void update() { allocate_state(); }

  size_t add(const Schedule::Action& action) {
    schedule_.actions.push_back(action);
    return schedule_.actions.size() - 1;
  }
  void enter(Phase phase) { add(Schedule::Enter{phase}); }
  void allocate(MemoryClass cls, int64_t bytes) { add(Schedule::Allocate{cls, bytes}); }
  void wait(size_t issued) { add(Schedule::Wait{issued}); }
  void reduce_scalars(int64_t count, int ranks, const char* label) {
    wait(add(Schedule::Issue{
        Operation::all_reduce, count, kScalar, ranks, /*in_arena=*/false, {}, label}));
  }

  // A norm_type of 2 needs no largest magnitude, and an infinite one no sum.
  void add_norm() {
    const int ranks = arrangement_.shards;
    if (config_.norm_type != 2)
      wait(add(Schedule::Issue{
          Operation::all_gather, ranks, kScalar, ranks, /*in_arena=*/false, {}, "norm"}));
    if (std::isfinite(config_.norm_type)) reduce_scalars(kDigits, ranks, "norm");
  }

  // AdamW keeps two moments of each element and a step count of each piece.
  void add_state(int64_t elements, int64_t pieces) {
    if (config_.optimizer.kind == OptimizerOptions::Kind::sgd) return;
    (in_files() ? schedule_.state_file_bytes : state_bytes_) += 2 * kElement * elements;
    state_bytes_ += kElement * pieces;
  }
  int64_t state_bytes() const { return state_bytes_; }  // that are not allocated yet
  // All of them, or so many, unless they are allocated.
  void allocate_state(int64_t bytes = std::numeric_limits<int64_t>::max()) {
    bytes = std::min(bytes, state_bytes_);
    allocate(MemoryClass::optimizer_state, bytes);
    state_bytes_ -= bytes;
  }

  const TrainConfig& config_;
  const ShardLayout& layout_;
  const bool first_;
  const bool training_{config_.steps > 0};
  const Arrangement arrangement_{config_.arrangement()};
  const Arrangement turns_{.turns = arrangement_.turns};  // of one rank
  int part_{};                                            // of those of this rank
  Schedule schedule_;

 private:
  bool in_files() const { return !config_.offload_dir.empty(); }
  void put_aside() {
    if (!in_files()) return;
    const auto [cls, bytes] = sum();
    allocate(cls, -bytes);
    auto& most = schedule_.put_aside_bytes;
    most = std::max(most, order().partial_sums(part_) * bytes);
  }
  // After part_ was computed. A sum in a file takes no memory.
  void free_added_sums() {
    if (in_files()) return;
    const auto [cls, bytes] = sum();
    const int before = order().partial_sums(part_) + (begins_sum() ? 1 : 0);
    allocate(cls, -(before - order().partial_sums(part_ + 1)) * bytes);
  }

  int64_t state_bytes_{};
};

}  // namespace fsdp
