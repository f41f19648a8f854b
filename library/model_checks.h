#pragma once

#include <agreement/same_on_all_ranks.h>
#include <fully_shard.h>
#include <unit_plan.h>

#include <string>
#include <utility>
#include <vector>

namespace fsdp {

// Checks a model before it is sharded. Throws std::invalid_argument if a parameter that will be
// sharded is sharded or replicated already on this rank, or shares memory with another parameter or
// buffer: after the sharding, the two would no longer share it. (One parameter or buffer can have
// several names.) Parameters that only `ignored` modules have will not be sharded.
void check_can_be_sharded(Module& net, const std::vector<torch::nn::Module*>& ignored);

// Collective. Compares the model between ranks, then, with `from_rank_0`, copies the values of rank
// 0's parameters and buffers to every rank. Throws what check_same_on_all_ranks() throws if a
// difference is found in
// - names, shapes or dtypes of parameters and buffers, or which parameters are trainable;
// - the units, or `options`: names and values;
// - without `from_rank_0`, the values of those parameters and buffers that have values.
void verify_model_across_ranks(Communicator& comm, const Module& net,
                               const std::vector<UnitPlan>& plan,
                               const std::vector<std::pair<std::string, std::string>>& options,
                               bool from_rank_0, const std::string& where);

// Returns each distinct buffer once, under its first name, as distinct_parameters() does for
// parameters.
std::vector<NamedParameter> distinct_buffers(const torch::nn::Module& module);

// Returns the distinct parameters of `net` that belong to no unit of `sharded`: those of ignored
// modules.
std::vector<NamedParameter> ignored_parameters(const torch::nn::Module& net,
                                               const FullySharded& sharded);

inline constexpr const char* kFreezeTheSame = "freeze the same parameters on every rank";
inline constexpr const char* kReplicasDiffer =
    "load an earlier state, and let check_optimizer() find what makes replicas differ";

}  // namespace fsdp
