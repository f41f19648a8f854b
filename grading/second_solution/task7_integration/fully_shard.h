#pragma once

#include <backward_hooks.h>
#include <flat_parameter.h>
#include <layout/shard_layout.h>
#include <prefetch.h>
#include <wrap_policy.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// A module that becomes a unit, and the parameters that its unit holds.
struct UnitPlan {
  std::string name;  // the module's path; "root" for the root
  Module* module;
  std::vector<NamedParameter> parameters;
};

// Gives every distinct parameter to one unit: that of the nearest wrapped module around it. A tied
// parameter, which has several places, goes to the nearest wrapped module around all of them, so
// that it is gathered wherever it is used. The root first, then parents before children; modules
// that get no parameter are left out. Throws std::invalid_argument when a chosen module is not
// under `root`.
std::vector<UnitPlan> plan_units(Module& root, const WrapPolicy& policy);

// Where the plan puts every element on `world_size` ranks.
ShardLayout plan_layout(const Module& root, const std::vector<UnitPlan>& plan, int world_size);

struct FullyShardOptions {
  WrapPolicy wrap{wrap_blocks()};
  bool reshard_after_forward{true};          // of every unit but the root
  int limit{2};                              // units gathered at a time; 1 means no prefetch
  FlatParameter::Materialize materialize{};  // of a model built by deferred initialization
};

// A model whose parameters, gradients and optimizer state are sharded over the ranks. The module is
// called, and its loss differentiated, as before.
class FullySharded {
 public:
  const std::vector<std::shared_ptr<FlatParameter>>& units() const { return units_; }
  const ShardLayout& layout() const { return layout_; }
  const Prefetcher& prefetcher() const { return *prefetcher_; }

  // Calls `visit` on rank 0 with every distinct parameter in the order of first registration. One
  // unit at a time is gathered on every rank: an all-gather whenever the next parameter lies in
  // another unit than the last.
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

// Shards `root` over the ranks of `comm`, in place. To be called once per model, by all ranks, with
// the same values on each. Buffers stay whole on every rank. No collective. Throws
// std::invalid_argument for a limit below 1.
std::shared_ptr<FullySharded> fully_shard(Module& root, std::shared_ptr<Communicator> comm,
                                          const FullyShardOptions& options = {});

}  // namespace fsdp
