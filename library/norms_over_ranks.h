#pragma once

#include <comm/communicator.h>
#include <norms.h>
#include <optim/shard_layout.h>

#include <string>
#include <vector>

namespace fsdp {

struct NamedPart {
  std::string name;
  // This rank's part of a tensor, such as a gradient; undefined if this rank does not have the
  // tensor.
  at::Tensor part;
};

// Returns for each parameter a NamedPart with the name of the parameter and its .grad.
std::vector<NamedPart> gradients_of(const std::vector<NamedParameter>& parameters);

// Collective. Returns the p-norm of each whole tensor that exists on at least one rank. Each rank
// passes its parts, all ranks in the same order. Throws what check_norm_type() throws.
Norms norms_over_ranks(const std::vector<NamedPart>& parts, Communicator& comm, double norm_type);

// Not collective. Returns the p-norm of each tensor that exists; each NamedPart has a whole tensor
// here. Throws what check_norm_type() throws.
Norms norms_of(const std::vector<NamedPart>& tensors, double norm_type);

// Collective. Returns whether all elements of all tensors are finite on all ranks.
bool finite_on_all_ranks(const std::vector<NamedPart>& tensors, Communicator& comm);

}  // namespace fsdp
