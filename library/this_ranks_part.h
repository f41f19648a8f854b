#pragma once

#include <base/torch.h>

namespace fsdp {

// A view of the same elements for which every operator of torch's works, and which autograd
// differentiates. FullyShardedDataParallel's parameters() and their gradients are this rank's parts
// of larger tensors, and refuse what is not computed element by element, such as norm() (the table
// in docs/what_works.md). Use this function if only the elements of this rank are meant: to print
// one, to compare two parts, or to add up a number over ranks by Communicator::all_reduce(). Other
// tensors may be passed too.
at::Tensor this_ranks_part(const at::Tensor& tensor);

}  // namespace fsdp
