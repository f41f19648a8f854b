#pragma once

#include <comm/communicator.h>

#include <string>

// Gathers whole values from shards, to save, hash or show them: parameters and optimizer states in
// the dtype of the shards. A training step gathers by FlatParameter::unshard() instead, which
// rounds to param_dtype.
namespace fsdp {

// Collective; one all-gather under the name of `unit`. Gathers `shard` [padded_numel / W] of every
// rank and returns one flat tensor [padded_numel]. The other ranks read `shard` until
// wait_for_readers().
at::Tensor gather_flat(Communicator& comm, const at::Tensor& shard, const std::string& unit);

// Returns the parameter at element `offset` of a flat tensor, as a view.
at::Tensor parameter_in(const at::Tensor& flat, int64_t offset, at::IntArrayRef sizes);

// Returns the parameter at element `offset` of a flat tensor as an owned copy on the CPU, which may
// outlive `flat`.
at::Tensor cut_out(const at::Tensor& flat, int64_t offset, at::IntArrayRef sizes);

}  // namespace fsdp
