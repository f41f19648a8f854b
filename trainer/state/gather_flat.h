#pragma once

#include <comm/communicator.h>

#include <string>

// Whole values from shards, for what is saved, hashed or shown: parameters and optimizer states, in
// the dtype of the shards. A step gathers by FlatParameter::unshard(), which rounds to param_dtype.
namespace fsdp {

// Collective, one all-gather under the name of `unit`. Gathers what each rank has for its shard,
// `shard` [padded_numel / W], and returns it as one flat tensor [padded_numel]. The other ranks
// read it until wait_for_readers().
at::Tensor gather_flat(Communicator& comm, const at::Tensor& shard, const std::string& unit);

// The parameter at element `offset` of such a flat tensor, as a view.
at::Tensor parameter_in(const at::Tensor& flat, int64_t offset, at::IntArrayRef sizes);

// The same parameter as an owned copy on the CPU, which outlives the flat tensor.
at::Tensor cut_out(const at::Tensor& flat, int64_t offset, at::IntArrayRef sizes);

}  // namespace fsdp
