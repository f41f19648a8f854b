#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace fsdp {

// Returns copies of `tensors`, which must be on the CPU. The copies are in an AnonymousFile in
// `folder`, which is mapped into memory and is closed when the last copy is freed. An undefined
// tensor stays undefined. `what` names the tensors in messages. Throws what AnonymousFile's
// constructor throws, and std::runtime_error if the file can't be written.
std::vector<at::Tensor> copies_in_file(const std::string& folder,
                                       const std::vector<at::Tensor>& tensors,
                                       const std::string& what);

}  // namespace fsdp
