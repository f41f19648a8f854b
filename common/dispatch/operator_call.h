#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/torch.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// A call of a LibTorch operator as data: the operator's handle and a stack of arguments, as a boxed
// kernel is given them.
namespace fsdp {

using c10::OperatorHandle;
using torch::jit::Stack;

std::string name_of(const OperatorHandle& op);  // "aten::normal_"

// Whether it makes a tensor from a description: randn(), zeros_like(), new_empty(); not to().
bool is_factory(const OperatorHandle& op);

// Whether it draws random numbers.
bool is_random(const OperatorHandle& op);

// The generator among the arguments, or the default one.
at::Generator generator_of(const Stack& arguments);

// The device among the arguments; nothing if none is asked for.
std::optional<c10::Device> device_of(const OperatorHandle& op, const Stack& arguments);

// Calls it; returns its results. call_on: a device among the arguments, also one left to the
// default, is replaced by `device`.
Stack call(const OperatorHandle& op, Stack arguments);
Stack call_on(c10::Device device, const OperatorHandle& op, Stack arguments);

// The defined tensors in an argument or a result: itself, or in the list that it is.
std::vector<at::Tensor> tensors_in(const c10::IValue& value);

// The same with each tensor replaced by f(tensor), f(tensor, whether the call changes its memory).
c10::IValue map_tensors(const c10::IValue& value,
                        const std::function<at::Tensor(const at::Tensor&)>& f);
Stack map_tensors(const OperatorHandle& op, const Stack& arguments,
                  const std::function<at::Tensor(const at::Tensor&, bool written)>& f);

// Null for a tensor without one (sparse).
const c10::StorageImpl* storage_of(const at::Tensor& tensor);

// A tensor of the same sizes, strides and dtype: without values, with its values, and on a storage,
// at the same offset.
at::Tensor empty_like_on(c10::Device device, const at::Tensor& tensor);
at::Tensor copy_of(const at::Tensor& tensor);
at::Tensor on_storage(const c10::Storage& storage, const at::Tensor& tensor);

}  // namespace fsdp
