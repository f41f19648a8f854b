#pragma once

#include <comm/communicator.h>
#include <sharded_leaves.h>
#include <state_dict.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

// These functions save, load and compare the state of a torch optimizer by the names of its
// parameters, both for sharded and for replicated parameters. `entries` are the parameters, each
// with the leaf that this rank owns.
namespace fsdp {

inline constexpr const char* kSaveOptimizerState = "optim_state_dict";
inline constexpr const char* kLoadOptimizerState = "load_optim_state_dict";

// Collective. Throws on every rank: std::invalid_argument if the optimizers differ between ranks in
// class, groups, options or numbers of steps; std::runtime_error if the state of an optimizer
// cannot be saved by name, such as that of LBFGS.
void check_optimizer_on_all_ranks(const torch::optim::Optimizer& optimizer, Communicator& comm,
                                  const std::vector<ShardedParameter>& entries);

// A function that gathers whole tensors: own[i][key] is this rank's part of a tensor that is cut as
// the parameter of entries[i]. Returns the whole tensors under "NAME/KEY".
using NamedTensors = std::map<std::string, at::Tensor>;
using GatherStates = std::function<NamedTensors(const std::map<size_t, NamedTensors>& own)>;

// Collective. Returns the whole state of the optimizer, gathered from all ranks: a tensor under
// each "NAME/KEY", and a text under "param_groups". `gather` is collective too. Set `replicated` if
// `gather` returns the same tensors in several replicas: then this function throws if their values
// differ. Throws what check_optimizer_on_all_ranks() throws.
StateDict optimizer_state(const torch::optim::Optimizer& optimizer, Communicator& comm,
                          const std::vector<ShardedParameter>& entries, bool replicated,
                          const GatherStates& gather);

// Collective. Loads `state`, a result of optimizer_state(), into the optimizer. Throws on every
// rank, before anything changes, if `state` lacks a name or has an unexpected one, if it was saved
// from another class of optimizer, if the optimizer's groups have other parameters than the saved
// groups, or if the ranks load different states.
void load_optimizer_state(torch::optim::Optimizer& optimizer, Communicator& comm,
                          const std::vector<ShardedParameter>& entries, const StateDict& state);

}  // namespace fsdp
