#pragma once

#include <base/torch.h>
#include <comm/communicator.h>
#include <optim/shard_layout.h>

#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// Something that must be the same on every rank, and its value on this rank: {"parameter
// b0.weight", "float [4, 4]"}.
struct RankInvariant {
  std::string what;
  std::string value;
  std::string advice;  // for the error text: what the user can do if the value differs
  // The tensor whose hash is `value`. Undefined if `value` is not the hash of a tensor, or if this
  // object does not keep the tensor.
  at::Tensor values{};
};

// The first invariant (RankInvariant) that differs between ranks.
struct Difference {
  // RankInvariant::what of the first invariant that differs; "what they have" if the ranks have
  // invariants of different names.
  std::string what;
  // The element of a global rank is the rank's RankInvariant::value or, if the ranks have
  // invariants of different names, its RankInvariant::what.
  std::vector<std::string> of_ranks;
  // The difference as a text for a message: "parameter b0.weight: float [4, 4] on rank 0, float [4,
  // 5] on ranks 1, 2; ADVICE".
  std::string text;
};

// Collective. Compares one digest of all invariants over the ranks of all replicas with small
// all-gathers. Only if the digests differ, gathers the invariants. Returns the first difference,
// the same on every rank; nothing if there is none.
// - If an invariant keeps its tensor, the text of the difference names the first element that
//   differs: "the values of parameter b0.weight: element [0, 3] is 0.5 on rank 0, 0.25 on ranks 1,
//   2".
// - If an invariant has only the hash of a tensor, the text shows the hash: "hash 5f796f5004548068
//   on rank 0".
// - If the ranks have invariants of different names, Difference::what is "what they have", and the
//   text ends with `what_differs` as its advice.
std::optional<Difference> difference_between_ranks(Communicator& comm,
                                                   const std::vector<RankInvariant>& invariants,
                                                   const std::string& what_differs);

// Collective. Compares the invariants as difference_between_ranks() does, and also `where`, the
// name of the function that the ranks call.
// Throws: std::invalid_argument "WHERE: ranks differ in TEXT" on every rank if there is a
// difference, where TEXT is Difference::text.
void check_same_on_all_ranks(
    Communicator& comm, const std::vector<RankInvariant>& invariants, const std::string& where,
    const std::string& what_differs = "build the same model on every rank");

// Returns an invariant that compares the values of `tensor` by their hash: {"the values of WHAT",
// ...}. If `keep` is true, the invariant keeps the tensor, so that the text of a difference can
// name an element.
RankInvariant invariant_of_values(const std::string& what, const at::Tensor& tensor,
                                  const std::string& advice, bool keep = true);

// Adds to `invariants` one invariant for the values of each tensor: {"the values of parameter
// b0.weight", ...}. `kind` is the first word of the tensor's description, for example "parameter".
void add_values(std::vector<RankInvariant>& invariants, const std::string& kind,
                const std::vector<NamedParameter>& tensors, const std::string& advice);

// Returns a hash of the tensor's values in row-major order, 16 hexadecimal digits. The hash is fast
// and not cryptographic.
std::string values_digest(const at::Tensor& tensor);

// Returns the dtype and the sizes of a tensor as a text such as "float [4, 4]".
std::string dtype_and_sizes(const at::Tensor& tensor);

}  // namespace fsdp
