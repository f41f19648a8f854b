#include <c10/util/ScopeExit.h>
#include <dispatch/operator_call.h>
#include <meta_init.h>
#include <torch/library.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace fsdp {
namespace {

// Storages stand for tensors: torch::empty() wraps what the dispatcher returned into another
// tensor, and what is written through one view is seen through the others.
using StorageSet = std::unordered_set<const c10::StorageImpl*>;
using StorageMap = std::unordered_map<const c10::StorageImpl*, c10::Storage>;

struct Operation {
  OperatorHandle op;
  Stack arguments;  // a recorded tensor: its meta storage under the sizes of then; another: a copy
  std::vector<c10::Storage> results;  // meta storages of the tensors returned; owned, so that no
                                      // address is used twice while the tape lives
  at::Generator generator;            // what it draws from; undefined: draws nothing
  at::Tensor generator_state;         // [5056] bytes, from before it drew
};

// `tensor` on the storage that took the place of its own; itself if none did.
at::Tensor moved(const at::Tensor& tensor, const StorageMap& places) {
  const auto place = places.find(storage_of(tensor));
  return place == places.end() ? tensor : on_storage(place->second, tensor);
}

}  // namespace

struct Tape {
  std::vector<Operation> operations;
  StorageSet made;   // meta storages of recorded tensors, kept alive by `operations`
  bool draws{true};  // random operations move their generators

  bool recorded(const at::Tensor& tensor) const { return made.count(storage_of(tensor)) != 0; }
  bool must_defer(const OperatorHandle& op, const Stack& arguments) const;
  Stack defer(const OperatorHandle& op, const Stack& arguments);
  std::optional<Stack> perform_on_meta(const OperatorHandle& op, const Stack& arguments) const;
  Stack perform_now(const OperatorHandle& op, const Stack& arguments) const;

  StorageMap replay(const std::vector<const Operation*>& chosen) const;
  std::vector<const Operation*> needed_for(StorageSet storages) const;
  at::Tensor materialize(const at::Tensor& tensor) const;
  void draw(const Operation& operation) const;
};

namespace {

thread_local Tape* recording = nullptr;

// Every operation comes here first while a construction is recorded; the operations it is made of
// do not.
void record(const OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard not_inside(c10::DispatchKey::DeferredInit);
  const Stack arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  const Stack results =
      recording->must_defer(op, arguments) ? recording->defer(op, arguments) : call(op, arguments);
  stack->insert(stack->end(), results.begin(), results.end());
}

}  // namespace

TORCH_LIBRARY_IMPL(_, DeferredInit, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&record>());
}

namespace {

void record_on(Tape& tape, const std::function<void()>& construct) {
  if (recording) {
    throw std::logic_error(
        "DeferredInit: a construction is being recorded already; record the outermost module once");
  }
  recording = &tape;
  const auto stop = c10::make_scope_exit([] { recording = nullptr; });
  c10::impl::IncludeDispatchKeyGuard redirect(c10::DispatchKey::DeferredInit);
  try {
    construct();
  } catch (const c10::Error& error) {
    if (std::string_view(error.what()).find("data is not allocated") == std::string_view::npos)
      throw;
    throw std::runtime_error(
        "DeferredInit: the constructor uses the memory of a deferred tensor through a pointer "
        "(data_ptr, accessor); use operations, or do it when the tensor is materialized");
  }
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

// An operation on tensors made before alone is done as ever.
bool Tape::must_defer(const OperatorHandle& op, const Stack& arguments) const {
  // torch::tensor(values) asks for this one, to fill it through its pointer.
  const bool for_values = name_of(op) == "aten::empty" && device_of(op, arguments) == at::kCPU &&
                          arguments[0].toDimVector().size() == 1;
  if (is_factory(op)) return !for_values;
  return std::any_of(arguments.begin(), arguments.end(), [&](const c10::IValue& argument) {
    const auto tensors = tensors_in(argument);
    return std::any_of(tensors.begin(), tensors.end(), [&](auto& t) { return recorded(t); });
  });
}

Stack Tape::defer(const OperatorHandle& op, const Stack& arguments) {
  const c10::Device device = device_of(op, arguments).value_or(at::kCPU);
  if (!device.is_cpu() && !device.is_meta()) {
    throw std::runtime_error(c10::str("DeferredInit: ", name_of(op), " asks for the device ",
                                      device, "; construct on the CPU, move what is materialized"));
  }

  Operation operation{op, {}, {}, {}, {}};
  bool changes = false;         // a recorded tensor
  bool changes_before = false;  // a tensor made before
  operation.arguments = map_tensors(op, arguments, [&](const at::Tensor& tensor, bool written) {
    if (written) (recorded(tensor) ? changes : changes_before) = true;
    return recorded(tensor) ? at::Tensor(tensor.variable_data()) : copy_of(tensor);
  });
  if (is_random(op)) {
    operation.generator = generator_of(arguments);
    operation.generator_state = operation.generator.get_state();
  }

  std::optional<Stack> results;
  if (!changes_before) results = perform_on_meta(op, arguments);
  if (draws && results && is_random(op)) draw(operation);
  if (!results) results = perform_now(op, arguments);

  for (const c10::IValue& value : *results) {
    for (const at::Tensor& tensor : tensors_in(value)) {
      if (!tensor.has_storage()) return *results;  // sparse: made now, and not deferred
      operation.results.push_back(tensor.storage());
      if (tensor.is_meta()) changes |= made.insert(storage_of(tensor)).second;
    }
  }
  // Else it is a view or a question about sizes: nothing that a replay would miss.
  if (changes) operations.push_back(std::move(operation));
  return *results;
}

// Nothing if the meta device cannot do it.
std::optional<Stack> Tape::perform_on_meta(const OperatorHandle& op, const Stack& arguments) const {
  try {
    Stack results =
        call_on(at::kMeta, op, map_tensors(op, arguments, [&](const at::Tensor& tensor, bool) {
                  return recorded(tensor) ? tensor : empty_like_on(at::kMeta, tensor);
                }));
    for (const c10::IValue& value : results) {
      for (const at::Tensor& tensor : tensors_in(value)) {
        if (!tensor.has_storage()) return std::nullopt;
      }
    }
    return results;
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

// Performs it on values at once: item() and nonzero() need them, a tensor made before has them, a
// mistake is told as ever. The tensors it returns are deferred nevertheless.
Stack Tape::perform_now(const OperatorHandle& op, const Stack& arguments) const {
  at::NoGradGuard no_grad;
  StorageMap origin;
  Stack real = map_tensors(op, arguments, [&](const at::Tensor& tensor, bool) {
    const at::Tensor value = materialize(tensor);
    if (value.has_storage()) origin.emplace(storage_of(value), tensor.storage());
    return value;
  });
  Stack results = call_on(at::kCPU, op, std::move(real));
  for (c10::IValue& value : results) {
    value = map_tensors(value, [&](const at::Tensor& tensor) {
      if (!tensor.has_storage()) return tensor;
      const bool is_new = origin.count(storage_of(tensor)) == 0;
      return is_new ? empty_like_on(at::kMeta, tensor) : moved(tensor, origin);
    });
  }
  return results;
}

// Performs the `chosen` operations in order. Returns, for each meta storage, the real one.
StorageMap Tape::replay(const std::vector<const Operation*>& chosen) const {
  at::NoGradGuard no_grad;
  StorageMap real;
  for (const Operation* operation : chosen) {
    at::Generator generator = operation->generator;
    const at::Tensor state = generator.defined() ? generator.get_state() : at::Tensor();
    if (generator.defined()) generator.set_state(operation->generator_state);

    const Stack results =
        call_on(at::kCPU, operation->op,
                map_tensors(operation->op, operation->arguments,
                            [&](const at::Tensor& tensor, bool) { return moved(tensor, real); }));
    if (generator.defined()) generator.set_state(state);

    auto meta = operation->results.begin();
    for (const c10::IValue& value : results) {
      for (const at::Tensor& tensor : tensors_in(value)) {
        real.emplace((meta++)->unsafeGetStorageImpl(), tensor.storage());
      }
    }
  }
  return real;
}

void DeferredInit::materialize_module(torch::nn::Module& module) const {
  std::vector<at::Tensor> tensors = module.parameters();
  for (const at::Tensor& buffer : module.buffers())
    tensors.push_back(buffer);

  StorageSet storages;
  for (const at::Tensor& tensor : tensors)
    storages.insert(storage_of(tensor));
  const StorageMap real = tape_->replay(tape_->needed_for(storages));
  for (const at::Tensor& tensor : tensors) {
    if (tape_->recorded(tensor)) assign_data(tensor, moved(tensor, real));
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

// Moves the generator as the operation will: on scratch memory, freed at once.
void Tape::draw(const Operation& operation) const {
  at::NoGradGuard no_grad;
  call_on(
      at::kCPU, operation.op,
      map_tensors(operation.op, operation.arguments, [&](const at::Tensor& tensor, bool written) {
        return written ? empty_like_on(at::kCPU, tensor) : materialize(tensor);
      }));
}

// In order, the operations that the values in `storages` depend on. Found from the end: a storage
// is needed from the last operation that changes it back to the one that made it.
std::vector<const Operation*> Tape::needed_for(StorageSet storages) const {
  std::vector<const Operation*> needed;
  for (auto operation = operations.rbegin(); operation != operations.rend(); ++operation) {
    StorageSet used;
    bool changes = false;
    map_tensors(operation->op, operation->arguments, [&](const at::Tensor& tensor, bool written) {
      used.insert(storage_of(tensor));
      changes |= written && storages.count(storage_of(tensor)) != 0;
      return tensor;
    });
    for (const c10::Storage& storage : operation->results) {
      changes |= storages.count(storage.unsafeGetStorageImpl()) != 0;
    }
    if (!changes) continue;
    needed.push_back(&*operation);
    storages.merge(used);
  }
  std::reverse(needed.begin(), needed.end());
  return needed;
}

at::Tensor Tape::materialize(const at::Tensor& tensor) const {
  if (!recorded(tensor)) return tensor;
  return moved(tensor, replay(needed_for({storage_of(tensor)})));
}

at::Tensor DeferredInit::materialize_tensor(const at::Tensor& tensor) const {
  return tape_->materialize(tensor);
}

std::vector<std::string> DeferredInit::operations() const {
  std::vector<std::string> names;
  for (const Operation& operation : tape_->operations)
    names.push_back(name_of(operation.op));
  return names;
}

}  // namespace fsdp
