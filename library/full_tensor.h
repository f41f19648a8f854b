#pragma once

#include <base/torch.h>

namespace fsdp {

// Collective, on all ranks of the model (of one replica). Returns the whole tensor of which
// `tensor` is this rank's part: a tensor of model.parameters(), a gradient of one, or a tensor that
// was computed from these element by element, such as an optimizer's moment.
// - The result is a plain tensor with the sizes of the parameter, and has the same values on every
//   rank. If `tensor` is a result of at::cat(), the result is flat.
// - Autograd differentiates the result: the gradient of a part is this rank's part of the gradient.
// - If `tensor` is not such a part, full_tensor() returns `tensor` itself. On a model with one
//   rank, no tensor is a part.
// - Issues one all-gather, of the parts in the tensor's dtype, each padded to the longest. For a
//   result of at::cat(), issues one for each part that was joined.
// Throws: std::logic_error if the sizes of the whole tensor or the places of the part are not
// known, because the part was transposed, reshaped, or joined with plain tensors, or if the model
// has been destroyed.
at::Tensor full_tensor(const at::Tensor& tensor);

}  // namespace fsdp
