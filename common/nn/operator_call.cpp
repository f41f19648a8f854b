#include <ATen/CPUGeneratorImpl.h>
#include <nn/operator_call.h>

namespace fsdp {

std::string name_of(const OperatorHandle& op) {
  return op.operator_name().name;
}

namespace {

// Returns whether the call may change the memory of the tensors in argument number `argument`.
bool writes(const OperatorHandle& op, size_t argument) {
  const c10::AliasInfo* alias = op.schema().arguments()[argument].alias_info();
  // The schema of some operators does not declare which arguments they change: batch_norm, for
  // example, changes its running statistics. Such operators have the tag
  // maybe_aliasing_or_mutating.
  return (alias && alias->isWrite()) || op.hasTag(at::Tag::maybe_aliasing_or_mutating);
}

}  // namespace

// A factory has the arguments of TensorOptions, such as pin_memory. to() has pin_memory too, but it
// also has non_blocking.
bool is_factory(const OperatorHandle& op) {
  return op.schema().argumentIndexWithName("pin_memory") &&
         !op.schema().argumentIndexWithName("non_blocking");
}

// The excluded dispatch keys distinguish the callers of at::empty(): torch::tensor() excludes the
// keys of autograd, torch::empty() also ADInplaceOrView, and a direct call excludes none.
bool is_filled_by_pointer(const OperatorHandle& op, const Values& arguments) {
  return name_of(op) == "aten::empty" && device_of(op, arguments) == at::kCPU &&
         arguments[0].toDimVector().size() == 1 &&
         c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutogradFunctionality) &&
         !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::ADInplaceOrView);
}

bool is_random(const OperatorHandle& op) {
  return op.hasTag(at::Tag::nondeterministic_seeded);
}

at::Generator generator_of(const Values& arguments) {
  for (const c10::IValue& argument : arguments) {
    if (argument.isGenerator()) return argument.toGenerator();
  }
  return at::detail::getDefaultCPUGenerator();
}

std::optional<c10::Device> device_of(const OperatorHandle& op, const Values& arguments) {
  const auto index = op.schema().argumentIndexWithName("device");
  return index ? arguments[*index].toOptional<c10::Device>() : std::nullopt;
}

Values call(const OperatorHandle& op, Values arguments) {
  op.callBoxed(arguments);
  return arguments;
}

Values call_on(c10::Device device, const OperatorHandle& op, Values arguments) {
  if (auto index = op.schema().argumentIndexWithName("device")) arguments[*index] = device;
  return call(op, std::move(arguments));
}

std::vector<at::Tensor> tensors_in(const c10::IValue& value) {
  return tensors_in(Values{value});
}

std::vector<at::Tensor> tensors_in(const Values& values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values)
    map_tensors(value, [&](const at::Tensor& tensor) { return tensors.emplace_back(tensor); });
  return tensors;
}

c10::IValue map_tensors(const c10::IValue& value,
                        const std::function<at::Tensor(const at::Tensor&)>& f) {
  if (value.isTensor() && value.toTensor().defined()) return f(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> mapped;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      mapped.push_back(tensor.defined() ? f(tensor) : tensor);
    }
    return mapped;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> mapped;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      mapped.push_back(tensor && tensor->defined() ? std::optional(f(*tensor)) : tensor);
    }
    return mapped;
  }
  return value;
}

Values map_tensors(const OperatorHandle& op, const Values& arguments,
                   const std::function<at::Tensor(const at::Tensor&, bool written)>& f) {
  Values mapped;
  for (size_t i = 0; i < arguments.size(); ++i) {
    mapped.push_back(map_tensors(
        arguments[i], [&](const at::Tensor& tensor) { return f(tensor, writes(op, i)); }));
  }
  return mapped;
}

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

namespace {

// Returns `other`; marks it as a wrapped number if `tensor` is one. The 2.0 of 2.0 / x arrives as a
// tensor with this mark, which keeps it from promoting the dtype of the result. A tensor that
// replaces it needs the mark too.
at::Tensor marked_like(const at::Tensor& tensor, at::Tensor other) {
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    other.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return other;
}

}  // namespace

at::Tensor empty_like_on(c10::Device device, const at::Tensor& tensor) {
  const auto options = at::dtype(tensor.dtype()).device(device);
  return marked_like(tensor, at::empty_strided(tensor.sizes(), tensor.strides(), options));
}

at::Tensor copy_of(const at::Tensor& tensor) {
  return marked_like(tensor, tensor.detach().clone());
}

at::Tensor on_storage(const c10::Storage& storage, const at::Tensor& tensor) {
  at::Tensor result = at::empty({0}, at::dtype(tensor.dtype()).device(storage.device()));
  result.set_(storage, tensor.storage_offset(), tensor.sizes(), tensor.strides());
  result.unsafeGetTensorImpl()->_set_conj(tensor.is_conj());
  result.unsafeGetTensorImpl()->_set_neg(tensor.is_neg());
  return result;
}

}  // namespace fsdp
