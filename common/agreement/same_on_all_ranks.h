#pragma once

#include <base/torch.h>
#include <comm/communicator.h>
#include <optim/shard_layout.h>

#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// Something that has to be the same on every rank: {"parameter b0.weight", "float [4, 4]"}.
struct RankInvariant {
  std::string what;
  std::string value;
  std::string advice;   // what to do where it differs
  at::Tensor values{};  // of which `value` is the hash; undefined if `value` says all there is
};

// Where ranks differ.
struct Difference {
  std::string what;                   // of the first trait that differs
  std::vector<std::string> of_ranks;  // its value, by global rank
  // "parameter b0.weight: float [4, 4] on rank 0, float [4, 5] on ranks 1, 2; ADVICE"
  std::string text;
};

// Collective: compares one digest of all traits over the ranks of all replicas, by small
// all-gathers. Only if it differs are the traits gathered, and the first difference returned, the
// same on every rank.
// - If a trait has values, the text names the first element that differs: "the values of parameter
//   b0.weight: element [0, 3] is 0.5 on rank 0, 0.25 on ranks 1, 2".
// - If a trait has only the hash of values, the text says so: "hash 5f796f5004548068 on rank 0".
// - If one rank has other traits than another, `what` is "what they have", and `what_differs` is
//   the advice.
std::optional<Difference> difference_between_ranks(Communicator& comm,
                                                   const std::vector<RankInvariant>& traits,
                                                   const std::string& what_differs);

// Collective, as difference_between_ranks(). Throws std::invalid_argument on every rank if there is
// a difference: "WHERE: ranks differ in TEXT". Ranks that give another `where` differ too.
void check_same_on_all_ranks(Communicator& comm, const std::vector<RankInvariant>& traits,
                             const std::string& where,
                             const std::string& what_differs =
                                 "build the same model on every "
                                 "rank");

// Compares the values of `tensor` by their hash: {"the values of WHAT", ...}. With `keep` it holds
// the tensor, so that the text can name an element.
RankInvariant trait_of_values(const std::string& what, const at::Tensor& tensor,
                              const std::string& advice, bool keep = true);

// Adds one for the values of each of these tensors: {"the values of parameter b0.weight", ...}.
void add_values(std::vector<RankInvariant>& traits, const std::string& kind,
                const std::vector<NamedParameter>& tensors, const std::string& advice);

// 16 hexadecimal digits of a tensor's values, in row-major order. Fast, and no secret.
std::string values_digest(const at::Tensor& tensor);

// "float [4, 4]"
std::string dtype_and_sizes(const at::Tensor& tensor);

}  // namespace fsdp
