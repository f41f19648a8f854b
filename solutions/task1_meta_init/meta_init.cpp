#include <c10/util/ScopeExit.h>
#include <meta_init.h>
#include <operator_call.h>
#include <torch/library.h>

#include <stdexcept>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace fsdp {
namespace {

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

// What `tensor` is on meta, on the real storage made for it; itself if there is none.
at::Tensor real_tensor(const at::Tensor& tensor, const RealStorages& real) {
  const auto found = real.find(storage_of(tensor));
  return found == real.end() ? tensor : on_storage(found->second, tensor);
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
  StorageSet made;   // meta storages of recorded tensors, kept alive by `operations`
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
  const bool for_values = name_of(op) == "aten::empty" && device_of(op, arguments) == at::kCPU &&
                          arguments[0].toDimVector().size() == 1;
  if (is_factory(op)) return !for_values;
  for (const c10::IValue& argument : arguments) {
    for (const at::Tensor& tensor : tensors_in(argument)) {
      if (recorded(tensor)) return true;
    }
  }
  return false;
}

Stack Tape::defer(const OperatorHandle& op, const Stack& arguments) {
  const auto device = device_of(op, arguments).value_or(at::kCPU);
  if (!device.is_cpu() && !device.is_meta()) {
    throw std::runtime_error(c10::str("DeferredInit: ", name_of(op), " asks for the device ",
                                      device, "; construct on the CPU, move what is materialized"));
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
  if (draws && is_random(op)) draw(operation);

  for (const c10::IValue& value : results) {
    for (const at::Tensor& tensor : tensors_in(value)) {
      operation.results.push_back(tensor.storage());
      changes |= made.insert(storage_of(tensor)).second;
    }
  }
  // Else it is a view or a question about sizes: nothing that a replay would miss.
  if (changes) operations.push_back(std::move(operation));
  return results;
}

// Moves the generator as the operation will: on scratch memory where it only writes.
void Tape::draw(Operation& operation) const {
  Stack arguments;
  for (size_t i = 0; i < operation.arguments.size(); ++i) {
    arguments.push_back(map_tensors(operation.arguments[i], [&](const at::Tensor& tensor) {
      return writes(operation.op, i) ? empty_like_on(at::kCPU, tensor) : materialize(tensor);
    }));
  }
  operation.generator = generator_of(operation.arguments);
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
