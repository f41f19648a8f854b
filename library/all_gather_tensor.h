#pragma once

#include <base/torch.h>
#include <comm/communicator.h>

#include <memory>
#include <string>

namespace fsdp {

// Collective: an all-gather, and in backward a reduce-scatter, both named `name`. Each of the W
// ranks passes a tensor of sizes [n, ...]. Returns the tensors of all ranks, joined in the order of
// the ranks: [W n, ...]. Autograd differentiates the result. A contrastive loss, which compares the
// embeddings of this rank's rows with those of all ranks, needs this function.
// - The gradient of a rank's tensor is the sum, over all ranks, of the gradients of its rows. So if
//   each rank has the loss of its own rows, the mean over ranks that FSDP and DDP take is the
//   gradient of the mean loss.
// - All ranks must call backward, because the reduce-scatter is collective too.
// Throws:
// - std::invalid_argument if `tensor` has no dimension, or if `comm` has replicas: pass a
//   communicator made by Communicator::create();
// - CollectiveError if the ranks' tensors differ in the number of elements or in the dtype.
at::Tensor all_gather_tensor(const at::Tensor& tensor, const std::shared_ptr<Communicator>& comm,
                             const std::string& name = "all_gather_tensor()");

}  // namespace fsdp
