#pragma once

#include <backward_hooks.h>
#include <flat_parameter.h>
#include <keep_fp32.h>
#include <optim/shard_layout.h>
#include <prefetch.h>
#include <unit_plan.h>
#include <wrap_policy.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

struct FullyShardOptions {
  WrapPolicy wrap{wrap_blocks()};
  bool reshard_after_forward{true};          // of every unit but the root
  int limit{2};                              // see Prefetcher; 1 means no prefetch
  FlatParameter::Materialize materialize{};  // for a model built by deferred initialization
  // Extensions: see plan_units() in ignored.h, and keep_in_fp32(). Empty or null: none.
  std::vector<torch::nn::Module*> ignored{};
  ParameterFilter keep_fp32{};
  // Given, not a problem: called with the whole plan before anything else is changed, so that it
  // may give parameters to other units. Null: the plan stays. See separate_frozen().
  std::function<void(std::vector<UnitPlan>& plan)> change_plan{};
  // Given, not a problem, and set only by the library: makes the units in place of check_fp32() and
  // make_flat_parameter(), for parameters that are not fp32 (any_dtype.h). Your fully_shard() need
  // not look at it. Null: all parameters are fp32.
  decltype(&make_flat_parameter) make_unit{};
};

// A model whose parameters, gradients and optimizer state are sharded over the ranks. You call its
// module, and run backward from its loss, as before. The module's hooks own all that they need, so
// these calls also work after this object is gone.
class FullySharded {
 public:
  FullySharded() = default;
  FullySharded(const FullySharded&) = delete;  // a model has one set of shards

  const std::vector<std::shared_ptr<FlatParameter>>& units() const { return units_; }
  const ShardLayout& layout() const { return layout_; }
  const std::shared_ptr<BackwardHooks>& backward_hooks() const { return backward_hooks_; }
  const std::shared_ptr<Prefetcher>& prefetcher() const { return prefetcher_; }

  // Calls `visit` on rank 0 once for every distinct parameter, in the order of first registration.
  // `visit` gets the whole parameter as unshard() gives it, detached and on the CPU. All ranks call
  // this function.
  // - On each rank, one unit at a time is unsharded. Whenever the next parameter lies in another
  //   unit than the parameter before it, each rank issues one all-gather.
  // - If a unit was unsharded before the call, or its all-gather was under way, the first use of
  //   this unit needs no other all-gather.
  // - Afterwards all units are sharded.
  void full_parameters(const ParameterVisitor& visit) const;

 private:
  friend std::shared_ptr<FullySharded> fully_shard(Module& root, std::shared_ptr<Communicator> comm,
                                                   const FullyShardOptions& options);
  std::shared_ptr<Communicator> comm_;
  std::vector<std::shared_ptr<FlatParameter>> units_;
  ShardLayout layout_;
  std::shared_ptr<BackwardHooks> backward_hooks_;
  std::shared_ptr<Prefetcher> prefetcher_;
};

// Shards `root` over the ranks of `comm`, in place. Call it once per model, on all ranks, with the
// same values on each. Calls no collective. Buffers stay whole on every rank.
// Throws:
// - what plan_units() throws, and std::invalid_argument if the limit is below 1 or a parameter is
//   not fp32; then the model is unchanged and has no hook;
// - what options.materialize throws; then the model is unusable.
std::shared_ptr<FullySharded> fully_shard(Module& root, std::shared_ptr<Communicator> comm,
                                          const FullyShardOptions& options = {});

}  // namespace fsdp
