#pragma once

#include <comm/communicator.h>
#include <sharded_leaves.h>
#include <state_dict.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

// The state of one of torch's optimizers by name, whatever sharded or replicated the parameters.
// `entries` are the parameters, with what this rank owns of each.
namespace fsdp {

inline constexpr const char* kSaveOptimizerState = "optim_state_dict";
inline constexpr const char* kLoadOptimizerState = "load_optim_state_dict";

// Collective. Throws std::invalid_argument on every rank unless the optimizers of all ranks have
// the same class, groups, options, and numbers of steps.
void check_optimizer_on_all_ranks(const torch::optim::Optimizer& optimizer, Communicator& comm,
                                  const std::vector<ShardedParameter>& entries);

// Makes of `own`, the tensors of this rank by entry and key, the whole ones by "NAME/KEY".
using NamedTensors = std::map<std::string, at::Tensor>;
using GatherStates = std::function<NamedTensors(const std::map<size_t, NamedTensors>& own)>;

// Collective. Returns the state of all ranks: "NAME/KEY", and "param_groups". `gather` is
// collective too. If `replicated`, each replica has all that it returns, and this function throws
// if replicas differ in a value. Throws what check_optimizer_on_all_ranks() throws.
StateDict optimizer_state(const torch::optim::Optimizer& optimizer, Communicator& comm,
                          const std::vector<ShardedParameter>& entries, bool replicated,
                          const GatherStates& gather);

// Collective. Puts such a state into the optimizer. Throws on every rank, before anything changes,
// if something is missing, unexpected or another optimizer's, or if other parameters form a group.
void load_optimizer_state(torch::optim::Optimizer& optimizer, Communicator& comm,
                          const std::vector<ShardedParameter>& entries, const StateDict& state);

}  // namespace fsdp
