#pragma once

#include <base/torch.h>
#include <comm/communicator.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// Says which elements of a whole tensor each rank has. Each rank has a range of them, in row-major
// order and in the order of the ranks; a range may be empty.
struct Placement {
  // The communicator of the ranks that have parts of the tensor; expires with the model.
  std::weak_ptr<Communicator> comm;
  int rank{};                  // this rank's number in `comm`
  std::vector<int64_t> sizes;  // sizes of the whole tensor
  // [elements] W + 1 numbers: rank r has the elements from begins[r] to begins[r + 1] - 1.
  std::vector<int64_t> begins;

  // If the whole tensor is a result of flatten(): the placement of the tensor that was flattened.
  // Otherwise null.
  std::shared_ptr<const Placement> unflattened{};

  int64_t begin() const { return begins[rank]; }
  // Returns the number of elements in this rank's part.
  int64_t numel() const { return begins[rank + 1] - begins[rank]; }
};

// Returns the placement of a parameter with the sizes `sizes`. The parameter begins at element
// `flat` of its unit's flat tensor. Each rank of `comm` has `shard_numel` elements of the flat
// tensor.
std::shared_ptr<const Placement> placement_of(at::IntArrayRef sizes, int64_t flat,
                                              int64_t shard_numel,
                                              const std::shared_ptr<Communicator>& comm);

// Collective: one all-gather of the parts, each padded to the longest, named after `parameter`.
// Returns the whole tensor, of which `part` is this rank's part. `part` is a plain tensor of any
// dtype. Autograd differentiates the result: the gradient of the part is this rank's part of the
// gradient. Throws std::logic_error if the model of the parameter has been destroyed.
at::Tensor gather_parts(const at::Tensor& part, const Placement& placement,
                        const std::string& parameter);

// Collective. Returns `value` of each rank whose part is not empty, [at most W], in the order of
// the ranks. `value`: one number; of a rank whose part is empty, any number of the same dtype.
at::Tensor gather_values(const at::Tensor& value, const Placement& placement,
                         const std::string& parameter);

// Returns those elements of `whole` that are at the places of this rank's part, with the sizes
// `part_sizes`. `whole` may have other sizes than the whole tensor if it can be broadcast to them;
// if it can't, returns nothing.
std::optional<at::Tensor> cut(const at::Tensor& whole, const Placement& placement,
                              at::IntArrayRef part_sizes);

}  // namespace fsdp
