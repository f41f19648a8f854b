#include <c10/util/ScopeExit.h>
#include <meta_init.h>
#include <nn/construction.h>
#include <torch/library.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <stdexcept>
#include <unordered_map>
#include <utility>

// The tape is a graph of steps. For every storage it has the step that wrote the storage last. For
// every step it has the earlier steps that had last written the storages of the step's arguments.
// The value of a tensor depends on the last step that wrote its storage, and on all steps that can
// be reached from that step.
namespace fsdp {
namespace {

using Storages = std::unordered_map<const c10::StorageImpl*, c10::Storage>;
using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

struct Step {
  OperatorHandle op;
  // The arguments of the operator: a meta tensor for each recorded tensor, and a copy of each other
  // tensor.
  Values arguments;
  // The indices, in Tape::steps, of the earlier steps that last wrote the arguments of this step.
  std::vector<size_t> needs;
  // The meta storages of the results of the step's operator, in the order of the results.
  std::vector<c10::Storage> makes;
  // The generator from which the step draws random numbers; undefined if the step draws none.
  at::Generator generator;
  // The state of the generator before the step drew: [5056] bytes.
  at::Tensor generator_state;
};

at::Tensor stand_in(const at::Tensor& tensor, const Storages& storages) {
  const auto found = storages.find(storage_of(tensor));
  return found == storages.end() ? tensor : on_storage(found->second, tensor);
}

}  // namespace

struct Tape {
  std::vector<Step> steps;
  // For each recorded meta storage, the index in `steps` of the step that wrote it last.
  std::unordered_map<const c10::StorageImpl*, size_t> last_writer;
  // For each meta storage that materialize_module() has replaced, the real storage that the module
  // got.
  std::unordered_map<const c10::StorageImpl*, WeakStorage> materialized;
  bool draws{true};

  bool recorded(const at::Tensor& tensor) const {
    return last_writer.count(storage_of(tensor)) != 0;
  }
  Values perform(const OperatorHandle& op, const Values& arguments);
  std::optional<Values> on_meta(const OperatorHandle& op, const Values& arguments) const;
  Values on_values(const OperatorHandle& op, const Values& arguments) const;
  void on_scratch(const Step& step) const;

  Storages replay(std::vector<size_t> last_steps) const;
  at::Tensor value_of(const at::Tensor& tensor) const;
};

namespace {

thread_local Tape* tape_in_use = nullptr;

void on_call(const OperatorHandle& op, c10::DispatchKeySet, Values* stack) {
  c10::impl::ExcludeDispatchKeyGuard parts_are_not_recorded(c10::DispatchKey::DeferredInit);
  const Values arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  for (c10::IValue& result : tape_in_use->perform(op, arguments))
    stack->push_back(std::move(result));
}

void run(Tape& tape, const std::function<void()>& construct) {
  if (tape_in_use != nullptr) {
    throw std::logic_error("DeferredInit inside DeferredInit: record the outermost module alone");
  }
  tape_in_use = &tape;
  const auto stop = c10::make_scope_exit([] { tape_in_use = nullptr; });
  c10::impl::IncludeDispatchKeyGuard start(c10::DispatchKey::DeferredInit);
  call_constructor(construct);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, DeferredInit, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_call>());
}

Values Tape::perform(const OperatorHandle& op, const Values& arguments) {
  const auto is_recorded = [this](const at::Tensor& tensor) { return recorded(tensor); };
  const bool makes_tensor = is_factory(op) && !is_filled_by_pointer(op, arguments);
  if (!makes_tensor && !std::ranges::any_of(tensors_in(arguments), is_recorded))
    return call(op, arguments);
  refuse_other_devices(op, arguments);

  Step step{op, {}, {}, {}, {}, {}};
  std::vector<const c10::StorageImpl*> written;
  bool writes_outside = false;
  step.arguments = map_tensors(op, arguments, [&](const at::Tensor& tensor, bool is_written) {
    const auto last = last_writer.find(storage_of(tensor));
    if (last == last_writer.end()) {
      writes_outside |= is_written;
      return copy_of(tensor);
    }
    step.needs.push_back(last->second);
    if (is_written) written.push_back(last->first);
    return at::Tensor(tensor.variable_data());
  });
  if (is_random(op)) {
    step.generator = generator_of(arguments);
    step.generator_state = step.generator.get_state();
  }

  std::optional<Values> results;
  if (!writes_outside) results = on_meta(op, arguments);
  if (!results) {
    results = on_values(op, arguments);
    if (is_random(op) && !draws) step.generator.set_state(step.generator_state);
  } else if (is_random(op) && draws) {
    on_scratch(step);
  }

  const auto is_sparse = [](const at::Tensor& tensor) { return !tensor.has_storage(); };
  // If a result of the operator is sparse, the call is not recorded: its results have real values
  // already.
  if (std::ranges::any_of(tensors_in(*results), is_sparse)) return *results;
  for (const at::Tensor& tensor : tensors_in(*results)) {
    step.makes.push_back(tensor.storage());
    if (tensor.is_meta() && !recorded(tensor)) written.push_back(storage_of(tensor));
  }
  // A call that writes nothing is not recorded: it has only made a view or read sizes.
  if (written.empty()) return *results;
  for (const c10::StorageImpl* storage : written)
    last_writer[storage] = steps.size();
  steps.push_back(std::move(step));
  return *results;
}

std::optional<Values> Tape::on_meta(const OperatorHandle& op, const Values& arguments) const {
  try {
    Values results =
        call_on(at::kMeta, op, map_tensors(op, arguments, [&](const at::Tensor& tensor, bool) {
                  return recorded(tensor) ? tensor : empty_like_on(at::kMeta, tensor);
                }));
    if (std::ranges::any_of(tensors_in(results),
                            [](const at::Tensor& t) { return !t.has_storage(); }))
      return {};
    return results;
  } catch (const c10::Error&) {
    return {};
  }
}

// Runs a call on materialized arguments, because the meta device cannot run the call, or because
// the call changes a tensor that was made before the recording. The tensors that the call makes
// become meta tensors, so they are deferred too.
Values Tape::on_values(const OperatorHandle& op, const Values& arguments) const {
  at::NoGradGuard no_grad;
  // Key: storage of the materialized value of an argument. Value: storage of the argument itself.
  Storages given;
  const Values values = map_tensors(op, arguments, [&](const at::Tensor& tensor, bool) {
    at::Tensor value = value_of(tensor);
    if (value.has_storage()) given.emplace(storage_of(value), tensor.storage());
    return value;
  });
  Values results = call_on(at::kCPU, op, values);
  for (c10::IValue& result : results) {
    result = map_tensors(result, [&](const at::Tensor& tensor) {
      const bool is_new = tensor.has_storage() && given.count(storage_of(tensor)) == 0;
      return is_new ? empty_like_on(at::kMeta, tensor) : stand_in(tensor, given);
    });
  }
  return results;
}

// Runs the random operator of `step` on memory that is freed at once, so that the generator moves
// as in eager construction.
void Tape::on_scratch(const Step& step) const {
  at::NoGradGuard no_grad;
  call_on(at::kCPU, step.op,
          map_tensors(step.op, step.arguments, [&](const at::Tensor& tensor, bool is_written) {
            return is_written ? empty_like_on(at::kCPU, tensor) : value_of(tensor);
          }));
}

// Replays the recorded steps with the indices `last_steps`, and all steps that they need. Returns
// the real storage for each meta storage that these steps make.
Storages Tape::replay(std::vector<size_t> last_steps) const {
  std::set<size_t> chosen;
  while (!last_steps.empty()) {
    const size_t step = last_steps.back();
    last_steps.pop_back();
    if (!chosen.insert(step).second) continue;
    last_steps.insert(last_steps.end(), steps[step].needs.begin(), steps[step].needs.end());
  }

  at::NoGradGuard no_grad;
  Storages real;
  for (const size_t index : chosen) {
    const Step& step = steps[index];
    const GeneratorStateScope rewound(step.generator, step.generator_state);
    const Values results =
        call_on(at::kCPU, step.op,
                map_tensors(step.op, step.arguments, [&](const at::Tensor& tensor, bool) {
                  return real.count(storage_of(tensor)) ? stand_in(tensor, real) : copy_of(tensor);
                }));
    auto meta = step.makes.begin();
    for (const at::Tensor& tensor : tensors_in(results))
      real.emplace((meta++)->unsafeGetStorageImpl(), tensor.storage());
  }
  return real;
}

at::Tensor Tape::value_of(const at::Tensor& tensor) const {
  const auto last = last_writer.find(storage_of(tensor));
  return last == last_writer.end() ? tensor : stand_in(tensor, replay({last->second}));
}

DeferredInit::DeferredInit(const std::function<void()>& construct)
    : tape_(std::make_unique<Tape>()) {
  run(*tape_, construct);
}

DeferredInit::~DeferredInit() = default;

void construct_on_meta(const std::function<void()>& construct) {
  Tape tape;
  tape.draws = false;
  run(tape, construct);
}

std::vector<std::string> DeferredInit::operations() const {
  std::vector<std::string> names;
  for (const Step& step : tape_->steps)
    names.push_back(name_of(step.op));
  return names;
}

at::Tensor DeferredInit::materialize_tensor(const at::Tensor& tensor) const {
  return tape_->value_of(tensor);
}

void DeferredInit::materialize_module(torch::nn::Module& module) const {
  std::vector<at::Tensor> deferred;
  for (const auto& tensors : {module.parameters(), module.buffers()}) {
    std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(deferred),
                 [&](const at::Tensor& tensor) { return tape_->recorded(tensor); });
  }
  std::vector<size_t> last_steps;
  // For meta storages that an earlier call materialized, the real storages that still exist.
  Storages alive;
  for (const at::Tensor& tensor : deferred) {
    const c10::StorageImpl* storage = storage_of(tensor);
    const auto before = tape_->materialized.find(storage);
    if (before != tape_->materialized.end()) {
      if (auto impl = before->second.lock()) alive.emplace(storage, std::move(impl));
    }
    if (alive.count(storage) == 0) last_steps.push_back(tape_->last_writer.at(storage));
  }
  const Storages replayed = tape_->replay(std::move(last_steps));
  for (const at::Tensor& tensor : deferred) {
    // A Variable that is registered under two names is in `deferred` twice. After the first time it
    // has real memory, so it is no longer recorded.
    if (!tape_->recorded(tensor)) continue;
    const c10::StorageImpl* storage = storage_of(tensor);
    assign_data(tensor, stand_in(tensor, alive.count(storage) ? alive : replayed));
    tape_->materialized.insert_or_assign(storage, tensor.storage().getWeakStorageImpl());
  }
}

void assign_data(const at::Tensor& variable, const at::Tensor& data) {
  if (variable.sizes() != data.sizes() || variable.scalar_type() != data.scalar_type()) {
    throw std::invalid_argument("assign_data: sizes or dtype of the data are not the variable's");
  }
  variable.unsafeGetTensorImpl()->shallow_copy_from(data.getIntrusivePtr());
}

}  // namespace fsdp
