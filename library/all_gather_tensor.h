#pragma once

#include <base/torch.h>
#include <comm/communicator.h>

#include <memory>
#include <string>

namespace fsdp {

// Collective: an all-gather, and in backward a reduce-scatter, both named `name`. Returns the
// tensors of all ranks, [n, ...] each, one after the other in the order of ranks: [W n, ...].
// Autograd differentiates it. A contrastive loss, which compares the embeddings of this rank's rows
// with those of all ranks, needs this function.
// - The gradient of a rank's tensor is the sum, over all ranks, of the gradients of its rows. So if
//   each rank has the loss of its own rows, the mean over ranks that FSDP and DDP take is the
//   gradient of the mean loss.
// - All ranks call backward, because the reduce-scatter is collective too.
// Throws:
// - std::invalid_argument if `tensor` has no dimension, or if `comm` has replicas: pass one of
//   Communicator::create();
// - CollectiveError if the ranks' tensors differ in the number of elements or in the dtype.
at::Tensor all_gather_tensor(const at::Tensor& tensor, const std::shared_ptr<Communicator>& comm,
                             const std::string& name = "all_gather_tensor()");

}  // namespace fsdp
