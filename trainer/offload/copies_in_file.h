#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace fsdp {

// Returns copies of tensors, which are on the CPU, in a AnonymousFile in `folder`, mapped. The file
// is closed with the last of the copies. An undefined tensor stays undefined. `what` names them in
// messages. Throws what AnonymousFile's constructor throws, and std::runtime_error if the file
// could not be written.
std::vector<at::Tensor> copies_in_file(const std::string& folder,
                                       const std::vector<at::Tensor>& tensors,
                                       const std::string& what);

}  // namespace fsdp
