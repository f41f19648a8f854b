#pragma once

#include <agreement/same_on_all_ranks.h>
#include <fully_shard.h>
#include <unit_plan.h>

#include <string>
#include <utility>
#include <vector>

namespace fsdp {

// What a model must be before it is sharded: of the parameters that will be sharded, because not
// only `ignored` modules have them, none is sharded or replicated already on this rank, and none
// shares memory with another parameter or buffer, because they would be two afterwards. (A
// parameter or buffer may have several names.) Throws std::invalid_argument.
void check_can_be_sharded(Module& net, const std::vector<torch::nn::Module*>& ignored);

// Collective. Throws what check_same_on_all_ranks() throws, unless all ranks have the same names,
// shapes and dtypes of parameters and buffers, the same units, and the same options, which come as
// names and values. Then all get the values of rank 0; without `from_rank_0` values, where there
// are any, have to be the same too.
void verify_model_across_ranks(Communicator& comm, const Module& net,
                               const std::vector<UnitPlan>& plan,
                               const std::vector<std::pair<std::string, std::string>>& options,
                               bool from_rank_0, const std::string& where);

// A distinct buffer by its first name, as distinct_parameters() has them.
std::vector<NamedParameter> distinct_buffers(const torch::nn::Module& module);

// The distinct parameters that no unit has: those of ignored modules.
std::vector<NamedParameter> ignored_parameters(const torch::nn::Module& net,
                                               const FullySharded& sharded);

inline constexpr const char* kFreezeTheSame = "freeze the same parameters on every rank";
inline constexpr const char* kReplicasDiffer =
    "load an earlier state, and let check_optimizer() find what makes replicas part";

}  // namespace fsdp
