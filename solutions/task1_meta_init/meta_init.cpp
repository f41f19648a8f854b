#include <meta_init.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/ScopeExit.h>
#include <torch/library.h>

#include <stdexcept>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace fsdp {
namespace {

using c10::OperatorHandle;
using torch::jit::Stack;

struct Operation {
  OperatorHandle op;
  Stack arguments;  // a recorded tensor: its meta storage under this use's sizes; another: a copy
  std::vector<c10::Storage> results;  // meta storages of the tensors returned, owned: no address is
                                      // used twice while the tape lives
  at::Generator generator;            // drawn from; undefined: nothing is drawn
  at::Tensor generator_state;         // [5056] bytes, before the operation
};

// Meta storage -> the storage that has its values. By storage, not by tensor: torch::empty() wraps
// what the dispatcher returned into another tensor, and views share what is written through one.
using RealStorages = std::unordered_map<const c10::StorageImpl*, c10::Storage>;
using StorageSet = std::unordered_set<const c10::StorageImpl*>;

std::string name_of(const OperatorHandle& op) {
  return op.operator_name().name;
}

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

// `value` with every tensor in it replaced by f(tensor).
template <typename F>
c10::IValue map_tensors(const c10::IValue& value, const F& f) {
  if (value.isTensor() && value.toTensor().defined()) return f(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> mapped;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      mapped.push_back(tensor.defined() ? at::Tensor(f(tensor)) : tensor);
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

std::vector<at::Tensor> tensors_in(const c10::IValue& value) {
  std::vector<at::Tensor> tensors;
  map_tensors(value, [&](const at::Tensor& tensor) { return tensors.emplace_back(tensor); });
  return tensors;
}

bool writes(const OperatorHandle& op, size_t argument) {
  const c10::AliasInfo* alias = op.schema().arguments()[argument].alias_info();
  return (alias && alias->isWrite()) || op.hasTag(at::Tag::maybe_aliasing_or_mutating);
}

// randn(), zeros_like(), new_empty(): makes a tensor from a description. Not to().
bool is_factory(const OperatorHandle& op) {
  return op.schema().argumentIndexWithName("pin_memory") &&
         !op.schema().argumentIndexWithName("non_blocking");
}

Stack call(const OperatorHandle& op, Stack arguments) {
  op.callBoxed(arguments);
  return arguments;
}

// The same with an argument that asks for a device, or leaves it to the default, turned to
// `device`.
Stack call_on(c10::Device device, const OperatorHandle& op, Stack arguments) {
  if (auto index = op.schema().argumentIndexWithName("device")) arguments[*index] = device;
  return call(op, std::move(arguments));
}

// The 2.0 of 2.0 / x is a tensor, marked to take no part in type promotion.
at::Tensor marked_like(const at::Tensor& tensor, at::Tensor other) {
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    other.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return other;
}

at::Tensor copy_of(const at::Tensor& tensor) {
  return marked_like(tensor, tensor.detach().clone());
}

at::Tensor empty_like_on(c10::Device device, const at::Tensor& tensor) {
  const auto options = at::dtype(tensor.dtype()).device(device);
  return marked_like(tensor, at::empty_strided(tensor.sizes(), tensor.strides(), options));
}

// What `tensor` is on meta, on the real storage made for it; itself if there is none.
at::Tensor real_tensor(const at::Tensor& tensor, const RealStorages& real) {
  const auto found = real.find(storage_of(tensor));
  if (found == real.end()) return tensor;
  at::Tensor result = at::empty({0}, at::dtype(tensor.dtype()).device(at::kCPU));
  result.set_(found->second, tensor.storage_offset(), tensor.sizes(), tensor.strides());
  result.unsafeGetTensorImpl()->_set_conj(tensor.is_conj());
  result.unsafeGetTensorImpl()->_set_neg(tensor.is_neg());
  return result;
}

void replay(const Operation& operation, RealStorages& real) {
  at::Generator generator = operation.generator;
  const at::Tensor now = generator.defined() ? generator.get_state() : at::Tensor();
  const auto restore = c10::make_scope_exit([&] {
    if (generator.defined()) generator.set_state(now);
  });
  if (generator.defined()) generator.set_state(operation.generator_state);

  Stack arguments;
  for (const c10::IValue& argument : operation.arguments) {
    arguments.push_back(
        map_tensors(argument, [&](const at::Tensor& tensor) { return real_tensor(tensor, real); }));
  }
  size_t result = 0;
  for (const c10::IValue& value : call_on(at::kCPU, operation.op, std::move(arguments))) {
    for (const at::Tensor& tensor : tensors_in(value)) {
      real.emplace(operation.results[result++].unsafeGetStorageImpl(), tensor.storage());
    }
  }
}

}  // namespace

struct Tape {
  std::vector<Operation> operations;
  StorageSet made;  // meta storages of recorded tensors, kept alive by `operations`
  bool draws{true};  // random operations move their generators

  bool recorded(const at::Tensor& tensor) const { return made.count(storage_of(tensor)) != 0; }
  bool must_defer(const OperatorHandle& op, const Stack& arguments) const;
  Stack defer(const OperatorHandle& op, const Stack& arguments);
  void draw(Operation& operation) const;
  Stack perform_now(const OperatorHandle& op, const Stack& arguments, const std::string& why) const;

  std::vector<const Operation*> needed_for(StorageSet storages) const;
  at::Tensor materialize(const at::Tensor& tensor) const;
};

namespace {

thread_local Tape* recording = nullptr;

// Every operation comes here first while a construction is recorded; its parts do not.
void record(const OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard no_parts(c10::DispatchKey::DeferredInit);
  const Stack arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  const Stack results =
      recording->must_defer(op, arguments) ? recording->defer(op, arguments) : call(op, arguments);
  stack->insert(stack->end(), results.begin(), results.end());
}

}  // namespace

TORCH_LIBRARY_IMPL(_, DeferredInit, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&record>());
}

bool Tape::must_defer(const OperatorHandle& op, const Stack& arguments) const {
  // torch::tensor(values) asks for this one, and fills it through its pointer.
  if (name_of(op) == "aten::empty" && arguments[0].isIntList() &&
      arguments[0].toIntList().size() == 1 && arguments[3].isDevice() &&
      arguments[3].toDevice().is_cpu()) {
    return false;
  }
  if (is_factory(op)) return true;
  for (const c10::IValue& argument : arguments) {
    for (const at::Tensor& tensor : tensors_in(argument)) {
      if (recorded(tensor)) return true;
    }
  }
  return false;
}

Stack Tape::defer(const OperatorHandle& op, const Stack& arguments) {
  if (auto index = op.schema().argumentIndexWithName("device")) {
    const c10::IValue& device = arguments[*index];
    if (device.isDevice() && !device.toDevice().is_cpu() && !device.toDevice().is_meta()) {
      throw std::runtime_error(c10::str("DeferredInit: ", name_of(op), " asks for the device ",
                                        device.toDevice(), "; construct on the CPU and move what ",
                                        "is materialized"));
    }
  }

  Operation operation{op, {}, {}, {}, {}};
  Stack on_meta;
  bool changes = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    for (const at::Tensor& tensor : tensors_in(arguments[i])) {
      if (!writes(op, i)) continue;
      if (!recorded(tensor)) {
        return perform_now(op, arguments, "together with a tensor made before");
      }
      changes = true;
    }
    // As they are now: the operation may give them other sizes.
    operation.arguments.push_back(map_tensors(arguments[i], [&](const at::Tensor& tensor) {
      return recorded(tensor) ? at::Tensor(tensor.variable_data()) : copy_of(tensor);
    }));
    on_meta.push_back(map_tensors(arguments[i], [&](const at::Tensor& tensor) {
      return recorded(tensor) ? tensor : empty_like_on(at::kMeta, tensor);
    }));
  }

  Stack results;
  try {
    results = call_on(at::kMeta, op, std::move(on_meta));
  } catch (const c10::Error& error) {  // it needs values; or it is a mistake, and will throw again
    return perform_now(op, arguments, error.what_without_backtrace());
  }
  if (draws && op.hasTag(at::Tag::nondeterministic_seeded)) draw(operation);

  for (const c10::IValue& value : results) {
    for (const at::Tensor& tensor : tensors_in(value)) {
      operation.results.push_back(tensor.storage());
      changes |= made.insert(storage_of(tensor)).second;
    }
  }
  if (changes)
    operations.push_back(std::move(operation));  // else a view, or a question about sizes
  return results;
}

// Moves the generator as the operation will: on scratch memory where it only writes.
void Tape::draw(Operation& operation) const {
  operation.generator = at::detail::getDefaultCPUGenerator();
  Stack arguments;
  for (size_t i = 0; i < operation.arguments.size(); ++i) {
    if (operation.arguments[i].isGenerator()) {
      operation.generator = operation.arguments[i].toGenerator();
    }
    arguments.push_back(map_tensors(operation.arguments[i], [&](const at::Tensor& tensor) {
      return writes(operation.op, i) ? empty_like_on(at::kCPU, tensor) : materialize(tensor);
    }));
  }
  operation.generator_state = operation.generator.get_state();
  at::NoGradGuard no_grad;
  call_on(at::kCPU, operation.op, std::move(arguments));
}

// Performs what cannot wait: an operation on values, or on a tensor that was made before.
Stack Tape::perform_now(const OperatorHandle& op, const Stack& arguments,
                        const std::string& why) const {
  Stack real;
  for (size_t i = 0; i < arguments.size(); ++i) {
    real.push_back(map_tensors(arguments[i], [&](const at::Tensor& tensor) {
      if (recorded(tensor) && writes(op, i)) {
        throw std::runtime_error(c10::str("DeferredInit: ", name_of(op), " cannot be recorded (",
                                          why, "); call it after its tensor is materialized"));
      }
      return materialize(tensor);
    }));
  }
  return call_on(at::kCPU, op, std::move(real));
}

// In order, the operations that the values in `storages` depend on. Backward from the end: a
// storage is needed from the last operation that changes it back to the one that made it.
std::vector<const Operation*> Tape::needed_for(StorageSet storages) const {
  std::vector<const Operation*> needed;
  for (auto operation = operations.rbegin(); operation != operations.rend(); ++operation) {
    StorageSet read;
    bool changes = false;
    for (size_t i = 0; i < operation->arguments.size(); ++i) {
      for (const at::Tensor& tensor : tensors_in(operation->arguments[i])) {
        read.insert(storage_of(tensor));
        changes |= writes(operation->op, i) && storages.count(storage_of(tensor)) != 0;
      }
    }
    for (const c10::Storage& storage : operation->results) {
      changes |= storages.count(storage.unsafeGetStorageImpl()) != 0;
    }
    if (!changes) continue;
    needed.push_back(&*operation);
    storages.merge(read);
  }
  std::reverse(needed.begin(), needed.end());
  return needed;
}

at::Tensor Tape::materialize(const at::Tensor& tensor) const {
  at::NoGradGuard no_grad;
  RealStorages real;
  for (const Operation* operation : needed_for({storage_of(tensor)}))
    replay(*operation, real);
  return real_tensor(tensor, real);
}

namespace {

void record_on(Tape& tape, const std::function<void()>& construct) {
  if (recording) {
    throw std::logic_error(
        "DeferredInit: a construction is being recorded already; record once, "
        "around the outermost module");
  }
  recording = &tape;
  const auto stop = c10::make_scope_exit([] { recording = nullptr; });
  c10::impl::IncludeDispatchKeyGuard redirect(c10::DispatchKey::DeferredInit);
  construct();
}

}  // namespace

void construct_on_meta(const std::function<void()>& construct) {
  Tape tape;
  tape.draws = false;
  record_on(tape, construct);
}

DeferredInit::DeferredInit(const std::function<void()>& construct)
    : tape_(std::make_unique<Tape>()) {
  record_on(*tape_, construct);
}

DeferredInit::~DeferredInit() = default;

std::vector<std::string> DeferredInit::operations() const {
  std::vector<std::string> names;
  for (const Operation& operation : tape_->operations)
    names.push_back(name_of(operation.op));
  return names;
}

at::Tensor DeferredInit::materialize_tensor(const at::Tensor& tensor) const {
  return tape_->materialize(tensor);
}

void DeferredInit::materialize_module(torch::nn::Module& module) const {
  std::vector<at::Tensor> tensors = module.parameters();
  for (const at::Tensor& buffer : module.buffers())
    tensors.push_back(buffer);

  at::NoGradGuard no_grad;
  StorageSet storages;
  for (const at::Tensor& tensor : tensors)
    storages.insert(storage_of(tensor));
  RealStorages real;
  for (const Operation* operation : tape_->needed_for(storages))
    replay(*operation, real);
  for (const at::Tensor& tensor : tensors) {
    if (tape_->recorded(tensor)) assign_data(tensor, real_tensor(tensor, real));
  }
}

void assign_data(const at::Tensor& variable, const at::Tensor& data) {
  if (variable.sizes() != data.sizes() || variable.dtype() != data.dtype()) {
    throw std::invalid_argument(c10::str("assign_data: a tensor of ", data.sizes(), " ",
                                         data.dtype(), " cannot take the place of ",
                                         variable.sizes(), " ", variable.dtype()));
  }
  variable.unsafeGetTensorImpl()->shallow_copy_from(data.getIntrusivePtr());
}

}  // namespace fsdp
