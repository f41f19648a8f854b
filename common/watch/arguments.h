#pragma once

#include <ATen/record_function.h>

#include <cstddef>

namespace fsdp::watch {

// Returns a hash of the arguments of an operator: the sizes, the dtypes and the values of tensors,
// and the numbers. Two runs of a program that call an operator with equal arguments get equal
// hashes. Calls no operator of torch.
size_t hash_of_arguments(const at::RecordFunction& function);

}  // namespace fsdp::watch
