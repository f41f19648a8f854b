#pragma once

#include <base/torch.h>

namespace fsdp {

// Returns `tensor` as a plain tensor: a view of the same elements, on which every torch operator
// works, and which autograd differentiates. The parameters() of a FullyShardedDataParallel, and
// their gradients, are this rank's parts of larger tensors: norm() of one is collective and gives
// the norm of the whole tensor, and operators that depend on the places of elements throw
// (docs/what_works.md has the table). Use this function if you mean only the elements of this rank:
// to print one, to compare two parts, or to add up a number over ranks with
// Communicator::all_reduce(). `tensor` need not be such a part.
at::Tensor this_ranks_part(const at::Tensor& tensor);

}  // namespace fsdp
