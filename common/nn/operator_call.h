#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <base/torch.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// A call of a LibTorch operator as data: the operator's handle and the values of its arguments, as
// the dispatcher passes them to a boxed kernel.
namespace fsdp {

using c10::OperatorHandle;
using Values = torch::jit::Stack;  // the arguments of a call or its results, in order

std::string name_of(const OperatorHandle& op);  // for example "aten::normal_"

// Returns whether `op` makes a tensor from a description: true for randn(), zeros_like() and
// new_empty(), false for to().
bool is_factory(const OperatorHandle& op);

// Returns whether this call is the call of at::empty() inside torch::tensor(values), which then
// fills the result through its data pointer. False for torch::empty({n}, torch::kCPU), which calls
// at::empty() with equal arguments.
bool is_filled_by_pointer(const OperatorHandle& op, const Values& arguments);

// Returns whether `op` draws random numbers.
bool is_random(const OperatorHandle& op);

// Returns the generator among the arguments, or else the default CPU generator.
at::Generator generator_of(const Values& arguments);

// Returns the device among the arguments; nothing if the arguments name no device.
std::optional<c10::Device> device_of(const OperatorHandle& op, const Values& arguments);

// call() calls `op` and returns its results. call_on() does so too, but first sets the argument
// `device`, if `op` has one, to `device`, even if the arguments named no device.
Values call(const OperatorHandle& op, Values arguments);
Values call_on(c10::Device device, const OperatorHandle& op, Values arguments);

// The overloads of tensors_in() return the defined tensors in one value, which may be a tensor or a
// list of tensors, or in several values.
std::vector<at::Tensor> tensors_in(const c10::IValue& value);
std::vector<at::Tensor> tensors_in(const Values& values);

// The overloads of map_tensors() replace each defined tensor by f(tensor), in one value or in all
// arguments of a call, and return the result. `written` is true if the call may change the memory
// of the tensor.
c10::IValue map_tensors(const c10::IValue& value,
                        const std::function<at::Tensor(const at::Tensor&)>& f);
Values map_tensors(const OperatorHandle& op, const Values& arguments,
                   const std::function<at::Tensor(const at::Tensor&, bool written)>& f);

// Returns the storage of `tensor`; null if `tensor` has none, for example if it is sparse.
const c10::StorageImpl* storage_of(const at::Tensor& tensor);

// These functions return a tensor with the sizes, strides and dtype of `tensor`: empty_like_on()
// with undefined values on `device`, copy_of() with a copy of its values (if it is not dense, with
// the strides of clone()), on_storage() as a view of `storage` at the same offset.
at::Tensor empty_like_on(c10::Device device, const at::Tensor& tensor);
at::Tensor copy_of(const at::Tensor& tensor);
at::Tensor on_storage(const c10::Storage& storage, const at::Tensor& tensor);

}  // namespace fsdp
