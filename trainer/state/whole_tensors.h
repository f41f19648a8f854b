#pragma once

#include <comm/communicator.h>

#include <string>

namespace fsdp {

// Collective, one all-gather under the name of `unit`: what each rank has for its shard, `shard`
// [padded / W], as one flat tensor [padded], which this returns. Until wait_for_readers() the other
// ranks read it.
at::Tensor gather_flat(Communicator& comm, const at::Tensor& shard, const std::string& unit);

// The parameter at element `offset` of such a flat tensor: an owned copy on the CPU.
at::Tensor cut_out(const at::Tensor& flat, int64_t offset, at::IntArrayRef sizes);

}  // namespace fsdp
