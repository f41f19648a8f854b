#pragma once

#include <fully_shard.h>
#include <same_on_all_ranks.h>
#include <unit_plan.h>

#include <vector>

namespace fsdp {

// What a model must be before it is sharded. Both throw std::invalid_argument. `plan`: what
// plan_units() gives.

// On this rank: no parameter that is sharded already, and no two parameters or buffers that share
// memory, for they would be two afterwards. (A parameter or buffer may have several names.)
void check_can_be_sharded(const Module& net);

// The names, shapes and dtypes of parameters and buffers, and the units, and, unless the tensors
// have none yet, their values.
std::vector<Trait> traits_of_structure(const Module& net, const std::vector<UnitPlan>& plan);
std::vector<Trait> traits_of_values(const Module& net);

// A distinct buffer by its first name, as distinct_parameters() has them.
std::vector<NamedParameter> distinct_buffers(const torch::nn::Module& module);

// The distinct parameters that no unit has: those of ignored modules.
std::vector<NamedParameter> ignored_parameters(const torch::nn::Module& net,
                                               const FullySharded& sharded);

inline constexpr const char* kFreezeTheSame = "freeze the same parameters on every rank";
inline constexpr const char* kReplicasDiffer =
    "load an earlier state, and let check_optimizer() find what makes replicas part";

}  // namespace fsdp
