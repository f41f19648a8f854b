#pragma once

#include <comm/communicator.h>

#include <string>

// Gathers whole parameters and optimizer states from shards, to save, hash or show them, in the
// dtype of the shards. A training step gathers with FlatParameter::unshard() instead, which rounds
// to param_dtype.
namespace fsdp {

// Collective; one all-gather, which is named after `unit` in messages and traces. Gathers `shard`
// [padded_numel / W] of every rank and returns one flat tensor [padded_numel]. The other ranks may
// read `shard` until Communicator::wait_for_readers() returns.
at::Tensor gather_flat(Communicator& comm, const at::Tensor& shard, const std::string& unit);

// Returns a view of the parameter with the shape `sizes` that begins at element `offset` of `flat`.
at::Tensor parameter_in(const at::Tensor& flat, int64_t offset, at::IntArrayRef sizes);

// Returns a copy, on the CPU, of the parameter with the shape `sizes` that begins at element
// `offset` of `flat`. The copy may outlive `flat`.
at::Tensor cut_out(const at::Tensor& flat, int64_t offset, at::IntArrayRef sizes);

}  // namespace fsdp
