#pragma once

#include <base/torch.h>
#include <comm/communicator.h>
#include <optim/shard_layout.h>

#include <string>
#include <vector>

namespace fsdp {

// Something that has to be the same on every rank: {"parameter b0.weight", "float [4, 4]"}.
struct Trait {
  std::string what;
  std::string value;
  std::string advice;   // what to do where it differs
  at::Tensor values{};  // of which `value` is the hash; undefined if `value` says all there is
};

// Collective: compares one digest of all traits over the ranks of all replicas, by small
// all-gathers. Only if it differs are the traits gathered. Then throws std::invalid_argument on
// every rank, which names the first trait that differs, its values, and the global ranks: "WHERE:
// ranks differ in parameter b0.weight: float [4, 4] on rank 0, float [4, 5] on ranks 1, 2; ADVICE".
// If a trait has values, the text names the first element that differs: "the values of parameter
// b0.weight: element [0, 3] is 0.5 on rank 0, 0.25 on ranks 1, 2". If it has only their hash, the
// text says so: "hash 5f796f5004548068 on rank 0, ...".
// `what_differs` is the advice if one rank has other traits than another.
void check_same_on_all_ranks(Communicator& comm, const std::vector<Trait>& traits,
                             const std::string& where,
                             const std::string& what_differs =
                                 "build the same model on every "
                                 "rank");

// Compares the values of `tensor` by their hash: {"the values of WHAT", ...}. With `keep` it holds
// the tensor, so that the text can name an element.
Trait trait_of_values(const std::string& what, const at::Tensor& tensor, const std::string& advice,
                      bool keep = true);

// Adds one for the values of each of these tensors: {"the values of parameter b0.weight", ...}.
void add_values(std::vector<Trait>& traits, const std::string& kind,
                const std::vector<NamedParameter>& tensors, const std::string& advice);

// Collective: every rank gets the values of global rank 0.
void broadcast_from_rank_0(Communicator& comm, const std::vector<NamedParameter>& tensors);

// Collective: floating-point ones become the mean over all ranks, the others global rank 0's.
void average_buffers(Communicator& comm, const std::vector<NamedParameter>& buffers);

// 16 hexadecimal digits of a tensor's values, in row-major order. Fast, and no secret.
std::string values_digest(const at::Tensor& tensor);

// "float [4, 4]"
std::string dtype_and_sizes(const at::Tensor& tensor);

}  // namespace fsdp
