#pragma once

#include <nn/module.h>

namespace fsdp {

// Moves the buffers of `model` to `device`, in place. Leaves the parameters where they are: they
// move when the model is sharded or replicated.
void move_buffers(const torch::nn::Module& model, c10::DeviceType device);

// Returns `tensor`, which is on the CPU, as a tensor on the device of the model's first parameter.
// If that is the meta device, the result keeps `tensor` alive, so that the bytes of `tensor` are
// counted as live for as long as the result lives.
at::Tensor to_device_of(const Module& model, const at::Tensor& tensor);

}  // namespace fsdp
