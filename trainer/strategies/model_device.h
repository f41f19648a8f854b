#pragma once

#include <nn/module.h>

namespace fsdp {

// Moves the buffers of `model` to `device`, in place. The parameters move when they are sharded or
// replicated.
void move_buffers(const torch::nn::Module& model, c10::DeviceType device);

// Returns `tensor`, which is on the CPU, on the device of the model's first parameter. If that is
// the meta device, the result keeps `tensor` alive, whose bytes are counted on the CPU.
at::Tensor to_device_of(const Module& model, const at::Tensor& tensor);

}  // namespace fsdp
