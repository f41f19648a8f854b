#pragma once

#include <base/torch.h>
#include <comm/communicator.h>

#include <string>
#include <vector>

namespace fsdp {

// Something that has to be the same on every rank: {"parameter b0.weight", "float [4, 4]"}.
struct Trait {
  std::string what;
  std::string value;
};

// Collective: compares one digest of all traits, by two small all-gathers. Only if it differs are
// the traits gathered. Then throws std::invalid_argument on every rank, which names the first trait
// that differs, its values, and the ranks: "WHERE: ranks differ in parameter b0.weight: float [4,
// 4] on rank 0, float [4, 5] on ranks 1, 2; ADVICE". With replicas, one small reduce-scatter finds
// whether they differ; the text then names no trait.
void check_same_on_all_ranks(Communicator& comm, const std::vector<Trait>& traits,
                             const std::string& where, const std::string& advice);

// 16 hexadecimal digits of a tensor's values, in row-major order. Fast, and no secret.
std::string values_digest(const at::Tensor& tensor);

// "float [4, 4]"
std::string dtype_and_sizes(const at::Tensor& tensor);

}  // namespace fsdp
