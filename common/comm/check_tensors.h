#pragma once

#include <ATen/core/Tensor.h>
#include <comm/call.h>

#include <string>

namespace fsdp {

// The tensors of a collective as a rank has given them, and where it is called.
struct TensorsOfCall {
  Operation operation;
  const at::Tensor& output;  // of all-reduce and broadcast: the tensor itself
  const at::Tensor& input;   // likewise
  int root;                  // of a broadcast, in the group
  const std::string& unit;
};

// Throws std::invalid_argument, which names the rank, the call and both tensors, unless the tensors
// are defined, contiguous, on `device`, of one dtype (a reduce-scatter may widen bf16 and fp16 to
// fp32), have memory, and are as large as the operation wants between `world_size` ranks.
// `global_rank` is only named.
void check_tensors(const TensorsOfCall& given, int world_size, c10::DeviceType device,
                   int global_rank);

}  // namespace fsdp
