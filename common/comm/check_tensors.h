#pragma once

#include <ATen/core/Tensor.h>
#include <comm/call.h>

#include <string>

namespace fsdp {

// The arguments of a collective, as the caller has passed them.
struct TensorsOfCall {
  Operation operation;
  const at::Tensor& output;  // in an all-reduce or a broadcast: the tensor, which is also the input
  const at::Tensor& input;  // in an all-reduce or a broadcast: the tensor, which is also the output
  int root;                 // the root of a broadcast, numbered in the group
  const std::string& unit;
};

// Checks the tensors of every collective except a barrier. Throws std::invalid_argument, which
// names the rank, the call and both tensors, unless
// - the tensors are defined, contiguous, on `device`, of one dtype (a reduce-scatter may widen bf16
//   and fp16 to fp32), and their memory is allocated;
// - they are as large as the operation needs between `world_size` ranks;
// - the output of a reduce-scatter does not overlap its input, and the root of a broadcast exists.
// `global_rank` is used only in the message.
void check_tensors(const TensorsOfCall& given, int world_size, c10::DeviceType device,
                   int global_rank);

}  // namespace fsdp
