#include <c10/util/ScopeExit.h>
#include <meta_init.h>
#include <nn/construction.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace fsdp {

// The tape identifies memory, not tensors: a storage has a number, its index in `storages`.
struct Tape {
  // Where a new storage is found after a call: in which of the tensors of its arguments, and then
  // of its results.
  struct Made {
    size_t position;
    size_t storage;
  };
  struct Operation {
    OperatorHandle op;
    // What stands for a tensor argument: a tensor with the sizes that it had before the call, on
    // its storage of the tape; a copy, on the CPU, if it was made outside; another meta tensor, if
    // the call reads nothing but its sizes.
    Values arguments;
    at::Tensor generator_state;  // [5056] before the call; undefined if it draws nothing
    std::vector<size_t> reads;
    std::vector<size_t> writes;
    std::vector<Made> made;
    std::optional<size_t> overwrites;  // the storage of whose former values nothing is left
    bool resizes{};                    // a storage that it writes
    bool aliases_copies{};             // its result may stand on a copy that is kept in `arguments`
  };

  std::vector<c10::Storage> storages;  // meta; owned, so that no later storage has their address
  std::unordered_map<const c10::StorageImpl*, size_t> numbers;
  std::vector<Operation> operations;
  // What materialize_module() has made. The modules own it.
  std::unordered_map<size_t, c10::weak_intrusive_ptr<c10::StorageImpl>> materialized;
};

namespace {

using Storages = std::vector<c10::Storage>;  // by number; null: not there

struct Recording {
  Tape& tape;
  bool keeps_values;  // false: only names and sizes are asked for, so nothing is recorded
};

thread_local Recording* current = nullptr;

// While it lives, operations are neither intercepted nor recorded by autograd.
struct Plain {
  c10::impl::ExcludeDispatchKeyGuard not_intercepted{c10::DispatchKey::DeferredInit};
  at::NoGradGuard no_grad;
};

// How a call uses one of its tensor arguments.
struct Use {
  at::Tensor tensor;
  std::optional<size_t> storage;  // of the tape
  bool written;
  bool read;  // not its sizes alone
};

// Operators that write their first argument without reading it.
constexpr std::array<std::string_view, 11> kFills{
    "aten::normal_", "aten::uniform_",    "aten::random_",    "aten::bernoulli_",
    "aten::cauchy_", "aten::log_normal_", "aten::geometric_", "aten::exponential_",
    "aten::zero_",   "aten::fill_",       "aten::copy_"};

bool is_fill(const OperatorHandle& op) {
  return std::ranges::find(kFills, name_of(op)) != kFills.end();
}

// randn_like(x), x.new_zeros(...): of the first argument they want the sizes, dtype and device.
bool takes_sizes_of_first(const OperatorHandle& op) {
  const std::string name = name_of(op);
  return is_factory(op) && (name.ends_with("_like") || name.starts_with("aten::new_"));
}

std::optional<size_t> number_of(const Tape& tape, const at::Tensor& tensor) {
  if (!tensor.defined()) return std::nullopt;
  const auto found = tape.numbers.find(storage_of(tensor));
  return found == tape.numbers.end() ? std::nullopt : std::optional(found->second);
}

size_t add_storage(Tape& tape, const c10::Storage& storage) {
  const auto [found, added] =
      tape.numbers.emplace(storage.unsafeGetStorageImpl(), tape.storages.size());
  if (added) tape.storages.push_back(storage);
  return found->second;
}

void add_once(std::vector<size_t>& numbers, size_t number) {
  if (std::ranges::find(numbers, number) == numbers.end()) numbers.push_back(number);
}

std::vector<Use> uses_of(const Tape& tape, const OperatorHandle& op, const Values& arguments) {
  std::vector<Use> uses;
  const bool fill = is_fill(op);
  const bool sizes_of_first = takes_sizes_of_first(op);
  map_tensors(op, arguments, [&](const at::Tensor& tensor, bool written) {
    const bool unread = (fill && written) || (sizes_of_first && uses.empty());
    uses.push_back({tensor, number_of(tape, tensor), written, !unread});
    return tensor;
  });
  return uses;
}

// The arguments with `tensors` in place of their defined tensors, in order.
Values with_tensors(const OperatorHandle& op, const Values& arguments,
                    const std::vector<at::Tensor>& tensors) {
  size_t next = 0;
  return map_tensors(op, arguments, [&](const at::Tensor&, bool) { return tensors[next++]; });
}

// The tensors among which Made::position counts.
std::vector<at::Tensor> tensors_after(std::vector<at::Tensor> of_arguments, const Values& results) {
  for (const c10::IValue& result : results)
    std::ranges::copy(tensors_in(result), std::back_inserter(of_arguments));
  return of_arguments;
}

struct Step {
  size_t operation;
  std::vector<size_t> release;  // the storages that no later step needs
};

// What later steps need of a storage.
enum class Need : uint8_t { nothing, memory, values };

bool is_needed(const Tape::Operation& operation, const std::vector<Need>& need) {
  const Need least = operation.resizes ? Need::memory : Need::values;
  return std::ranges::any_of(operation.writes, [&](size_t s) { return need[s] >= least; }) ||
         std::ranges::any_of(operation.made,
                             [&](const auto& made) { return need[made.storage] > Need::nothing; });
}

// Which operations the values of `wanted` depend on, in order.
std::vector<Step> plan_replay(const Tape& tape, const std::vector<size_t>& wanted) {
  std::vector<Need> need(tape.storages.size());
  std::vector<bool> used_later(tape.storages.size());
  for (const size_t storage : wanted) {
    need[storage] = Need::values;
    used_later[storage] = true;
  }
  std::vector<Step> steps;
  for (size_t i = tape.operations.size(); i-- > 0;) {
    const Tape::Operation& operation = tape.operations[i];
    if (!is_needed(operation, need)) continue;
    Step step{i, {}};
    const auto touch = [&](size_t storage, Need least) {
      need[storage] = std::max(need[storage], least);
      if (!used_later[storage]) step.release.push_back(storage);
      used_later[storage] = true;
    };
    if (operation.overwrites) need[*operation.overwrites] = Need::memory;
    for (const size_t storage : operation.reads)
      touch(storage, Need::values);
    for (const size_t storage : operation.writes)
      touch(storage, Need::memory);
    for (const auto& made : operation.made)
      touch(made.storage, Need::memory);
    steps.push_back(std::move(step));
  }
  std::ranges::reverse(steps);
  return steps;
}

// The tensor that a call gets for what the tape has kept of an argument.
at::Tensor real_tensor(const Tape& tape, const Tape::Operation& operation, const at::Tensor& kept,
                       bool written, const Storages& real) {
  if (const auto storage = number_of(tape, kept)) return on_storage(real[*storage], kept);
  const bool may_be_changed = kept.is_cpu() && (written || operation.aliases_copies);
  return may_be_changed ? copy_of(kept) : kept;
}

void run(const Tape& tape, const Tape::Operation& operation, Storages& real) {
  std::vector<at::Tensor> tensors;
  const Values arguments =
      map_tensors(operation.op, operation.arguments, [&](const at::Tensor& kept, bool written) {
        return tensors.emplace_back(real_tensor(tape, operation, kept, written, real));
      });
  const bool draws = operation.generator_state.defined();
  const Rewound rewound(draws ? generator_of(arguments) : at::Generator(),
                        operation.generator_state);
  tensors = tensors_after(std::move(tensors), call_on(at::kCPU, operation.op, arguments));
  for (const auto& [position, storage] : operation.made)
    real[storage] = tensors[position].storage();
}

// New memory with the values of `wanted`.
Storages replay(const Tape& tape, const std::vector<size_t>& wanted) {
  const Plain plain;
  Storages real(tape.storages.size());
  for (const Step& step : plan_replay(tape, wanted)) {
    run(tape, tape.operations[step.operation], real);
    for (const size_t storage : step.release)
      real[storage] = c10::Storage();
  }
  return real;
}

int64_t bytes_of_written(const std::vector<Use>& uses) {
  int64_t bytes = 0;
  for (const Use& use : uses) {
    if (use.written && use.storage) bytes += static_cast<int64_t>(use.tensor.storage().nbytes());
  }
  return bytes;
}

// The storage that a fill covers from end to end, if no other argument reads it.
std::optional<size_t> overwritten(const OperatorHandle& op, const std::vector<Use>& uses) {
  if (!is_fill(op) || !uses[0].storage) return std::nullopt;
  const at::Tensor& target = uses[0].tensor;
  const bool all =
      target.is_non_overlapping_and_dense() && target.nbytes() == target.storage().nbytes();
  const bool read = std::any_of(uses.begin() + 1, uses.end(),
                                [&](const Use& use) { return use.storage == uses[0].storage; });
  return all && !read ? uses[0].storage : std::nullopt;
}

// Everything of the record that is known before the call.
Tape::Operation record_of(const Recording& recording, const OperatorHandle& op,
                          const Values& arguments, const std::vector<Use>& uses) {
  Tape::Operation operation{op, {}, {}, {}, {}, {}, {}};
  if (!recording.keeps_values) return operation;
  std::vector<at::Tensor> kept;
  for (const Use& use : uses) {
    if (use.storage && use.read) add_once(operation.reads, *use.storage);
    if (use.storage && use.written) add_once(operation.writes, *use.storage);
    const bool only_sizes = !use.read && !use.written && use.tensor.has_storage();
    kept.push_back(only_sizes    ? empty_like_on(at::kMeta, use.tensor)
                   : use.storage ? use.tensor.variable_data()
                                 : copy_of(use.tensor));
  }
  operation.arguments = with_tensors(op, arguments, kept);
  operation.overwrites = overwritten(op, uses);
  if (is_random(op)) operation.generator_state = generator_of(arguments).get_state();
  return operation;
}

// Views are not recorded, whether the call makes them or turns its argument into one.
void keep(const Recording& recording, Tape::Operation operation) {
  const bool only_if_it_makes = operation.op.hasTag(at::Tag::inplace_view) ||
                                operation.op.hasTag(at::Tag::maybe_aliasing_or_mutating);
  const bool writes = !operation.writes.empty() && !only_if_it_makes;
  if (recording.keeps_values && (writes || operation.resizes || !operation.made.empty()))
    recording.tape.operations.push_back(std::move(operation));
}

// Memory for the storages that a call reads. Where no values are kept, a number takes their place
// that most operations accept: 0 as an index, 1 as a probability.
Storages values_for(const Recording& recording, const std::vector<Use>& uses, bool written_too) {
  std::vector<size_t> wanted;
  for (const Use& use : uses) {
    if (use.storage && (use.read || (written_too && use.written))) add_once(wanted, *use.storage);
  }
  if (recording.keeps_values) return replay(recording.tape, wanted);
  Storages real(recording.tape.storages.size());
  for (const Use& use : uses) {
    if (!use.storage || real[*use.storage]) continue;
    const auto bytes = static_cast<int64_t>(use.tensor.storage().nbytes());
    real[*use.storage] = at::zeros({bytes}, at::kByte).storage();
    if (use.tensor.is_floating_point()) on_storage(real[*use.storage], use.tensor).fill_(1);
  }
  return real;
}

// Draws what the call draws in eager construction, into memory that is freed at once.
void draw(const Recording& recording, const OperatorHandle& op, const Values& arguments,
          const std::vector<Use>& uses) {
  const Plain plain;
  const Storages real = values_for(recording, uses, /*written_too=*/false);
  std::vector<at::Tensor> tensors;
  for (const Use& use : uses) {
    tensors.push_back(!use.storage ? use.tensor
                      : use.read   ? on_storage(real[*use.storage], use.tensor)
                                   : empty_like_on(at::kCPU, use.tensor));
  }
  call_on(at::kCPU, op, with_tensors(op, arguments, tensors));
}

// A written argument may have other sizes or another storage after the call.
void follow(const at::Tensor& deferred, const at::Tensor& real, const c10::Storage& storage) {
  if (deferred.sizes() == real.sizes() && deferred.strides() == real.strides() &&
      storage_of(deferred) == storage.unsafeGetStorageImpl())
    return;
  deferred.unsafeGetTensorImpl()->shallow_copy_from(on_storage(storage, real).getIntrusivePtr());
}

// Puts back what a real call draws, if nobody asks for values.
Rewound undo_draws(const Recording& recording, const OperatorHandle& op, const Values& arguments) {
  const bool undone = is_random(op) && !recording.keeps_values;
  const at::Generator generator = undone ? generator_of(arguments) : at::Generator();
  return {generator, undone ? generator.get_state() : at::Tensor()};
}

// Performs a call on real tensors. What it makes is deferred all the same: from now on it is a meta
// tensor, which the record can compute again. But a sparse tensor, and a view of what was made
// outside, are handed out as they are.
Values perform_at_once(Recording& recording, const OperatorHandle& op, const Values& arguments,
                       const std::vector<Use>& uses) {
  const Plain plain;
  Tape& tape = recording.tape;
  Tape::Operation operation = record_of(recording, op, arguments, uses);
  const Storages real = values_for(recording, uses, /*written_too=*/true);
  std::vector<at::Tensor> tensors;
  std::unordered_map<const c10::StorageImpl*, std::optional<size_t>> known;  // null: made outside
  for (const Use& use : uses) {
    const bool replaced = use.storage && real[*use.storage];
    tensors.push_back(replaced ? on_storage(real[*use.storage], use.tensor) : use.tensor);
    known.emplace(storage_of(tensors.back()), use.storage);
  }
  const int64_t bytes = bytes_of_written(uses);
  const Rewound undone = undo_draws(recording, op, arguments);
  const Values results = call_on(at::kCPU, op, with_tensors(op, arguments, tensors));

  const std::vector<at::Tensor> after = tensors_after(tensors, results);
  for (size_t i = 0; i < after.size(); ++i) {
    if (!after[i].has_storage() || known.contains(storage_of(after[i]))) continue;
    const auto size = static_cast<int64_t>(after[i].storage().nbytes());
    const auto meta = at::empty({size}, at::dtype(at::kByte).device(at::kMeta)).storage();
    operation.made.push_back({i, add_storage(tape, meta)});
    known.emplace(storage_of(after[i]), operation.made.back().storage);
  }
  for (size_t i = 0; i < uses.size(); ++i) {
    if (!uses[i].written || !uses[i].storage) continue;
    const auto storage = known.at(storage_of(tensors[i]));
    if (storage) follow(uses[i].tensor, tensors[i], tape.storages[*storage]);
  }
  operation.resizes = bytes_of_written(uses) != bytes;
  keep(recording, std::move(operation));

  Values deferred;
  for (const c10::IValue& result : results) {
    deferred.push_back(map_tensors(result, [&](const at::Tensor& tensor) {
      for (size_t i = 0; i < uses.size(); ++i)
        if (tensor.is_same(tensors[i])) return uses[i].tensor;
      const auto found = known.find(storage_of(tensor));
      const bool is_deferred = tensor.has_storage() && found->second;
      return is_deferred ? on_storage(tape.storages[*found->second], tensor) : tensor;
    }));
  }
  return deferred;
}

// A call without a deferred tensor. A constructor may have taken the device from one.
Values perform_outside(const Recording& recording, const OperatorHandle& op,
                       const Values& arguments) {
  const c10::impl::ExcludeDispatchKeyGuard not_intercepted(c10::DispatchKey::DeferredInit);
  const Rewound undone = undo_draws(recording, op, arguments);
  if (device_of(op, arguments) == at::kMeta) return call_on(at::kCPU, op, arguments);
  return call(op, arguments);
}

// Whether the meta device is at fault, and not the constructor.
bool is_about_meta(const c10::Error& error) {
  const std::string_view message = error.what();
  return dynamic_cast<const c10::NotImplementedError*>(&error) != nullptr ||
         message.find("meta") != message.npos || message.find("Meta") != message.npos ||
         message.find("data is not allocated") != message.npos;
}

struct MetaCall {
  std::vector<at::Tensor> tensors;                        // arguments
  std::unordered_set<const c10::StorageImpl*> stand_ins;  // for tensors made outside
  Values results;
};

// Nothing if the meta device cannot do it.
std::optional<MetaCall> try_on_meta(const OperatorHandle& op, const Values& arguments,
                                    const std::vector<Use>& uses) {
  MetaCall made;
  for (const Use& use : uses) {
    made.tensors.push_back(use.storage ? use.tensor : empty_like_on(at::kMeta, use.tensor));
    if (!use.storage) made.stand_ins.insert(storage_of(made.tensors.back()));
  }
  try {
    made.results = call_on(at::kMeta, op, with_tensors(op, arguments, made.tensors));
  } catch (const c10::Error& error) {
    if (is_about_meta(error)) return std::nullopt;
    throw;
  }
  return made;
}

bool makes_sparse(const Values& results) {
  return std::ranges::any_of(results, [](const c10::IValue& result) {
    return std::ranges::any_of(tensors_in(result), [](auto& t) { return !t.has_storage(); });
  });
}

// Performs a call on the meta device and records it.
Values defer(Recording& recording, const OperatorHandle& op, const Values& arguments,
             const std::vector<Use>& uses) {
  const c10::impl::ExcludeDispatchKeyGuard not_intercepted(c10::DispatchKey::DeferredInit);
  Tape::Operation operation = record_of(recording, op, arguments, uses);
  const int64_t bytes = bytes_of_written(uses);
  std::optional<MetaCall> made = try_on_meta(op, arguments, uses);
  if (!made || makes_sparse(made->results)) return perform_at_once(recording, op, arguments, uses);

  if (operation.generator_state.defined()) {
    // The tape has the sizes from before the call.
    const auto before = uses_of(recording.tape, op, operation.arguments);
    draw(recording, op, operation.arguments, before);
  }
  const std::vector<at::Tensor> after = tensors_after(made->tensors, made->results);
  for (size_t i = 0; i < after.size(); ++i) {
    const bool argument = i < uses.size() && !uses[i].written;
    if (argument || number_of(recording.tape, after[i])) continue;
    operation.aliases_copies |= made->stand_ins.contains(storage_of(after[i]));
    operation.made.push_back({i, add_storage(recording.tape, after[i].storage())});
  }
  operation.resizes = bytes_of_written(uses) != bytes;
  // The default dtype may be another one when the tape is replayed.
  const auto dtype = op.schema().argumentIndexWithName("dtype");
  if (recording.keeps_values && dtype && is_factory(op) && operation.arguments[*dtype].isNone())
    operation.arguments[*dtype] = made->results[0].toTensor().scalar_type();
  keep(recording, std::move(operation));
  return made->results;
}

Values intercept(Recording& recording, const OperatorHandle& op, const Values& arguments) {
  refuse_other_devices(op, arguments);
  const std::vector<Use> uses = uses_of(recording.tape, op, arguments);
  const auto any = [&](auto&& is) { return std::ranges::any_of(uses, is); };
  const bool makes = is_factory(op) && !is_filled_by_pointer(op, arguments);
  if (!makes && !any([](const Use& use) { return use.storage.has_value(); }))
    return perform_outside(recording, op, arguments);
  const bool changes_outside = any([](const Use& use) { return use.written && !use.storage; });
  const bool reads_sparse = any([](const Use& use) { return !use.tensor.has_storage(); });
  if (changes_outside || reads_sparse) return perform_at_once(recording, op, arguments, uses);
  return defer(recording, op, arguments, uses);
}

void on_operator(const OperatorHandle& op, torch::jit::Stack* stack) {
  Values arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  Values results;
  if (current) {
    results = intercept(*current, op, arguments);
  } else {  // LibTorch has passed the thread's keys on to a thread of its own
    const c10::impl::ExcludeDispatchKeyGuard not_intercepted(c10::DispatchKey::DeferredInit);
    results = call(op, std::move(arguments));
  }
  std::ranges::move(results, std::back_inserter(*stack));
}

void record(Recording recording, const std::function<void()>& construct) {
  if (current) throw std::logic_error("DeferredInit: only the outermost construction is recorded");
  current = &recording;
  const auto reset = c10::make_scope_exit([] { current = nullptr; });
  const c10::impl::IncludeDispatchKeyGuard intercepted(c10::DispatchKey::DeferredInit);
  call_constructor(construct);
}

// The Variables of a module that are on the tape, each once per name.
std::vector<at::Tensor> recorded_variables(const Tape& tape, const torch::nn::Module& module) {
  std::vector<at::Tensor> variables;
  for (const auto& list : {module.named_parameters(), module.named_buffers()}) {
    for (const auto& item : list)
      if (number_of(tape, item.value())) variables.push_back(item.value());
  }
  return variables;
}

// By number, what earlier calls have materialized and somebody still holds.
Storages still_held(const Tape& tape) {
  Storages held(tape.storages.size());
  for (const auto& [storage, weak] : tape.materialized)
    if (auto alive = weak.lock()) held[storage] = c10::Storage(std::move(alive));
  return held;
}

}  // namespace

TORCH_LIBRARY_IMPL(_, DeferredInit, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_operator>());
}

void construct_on_meta(const std::function<void()>& construct) {
  Tape tape;
  const at::Generator generator = generator_of({});
  const Rewound rewound(generator, generator.get_state());  // also what manual_seed() does
  record({tape, false}, construct);
}

DeferredInit::DeferredInit(const std::function<void()>& construct)
    : tape_(std::make_unique<Tape>()) {
  record({*tape_, true}, construct);
}

DeferredInit::~DeferredInit() = default;

void DeferredInit::materialize_module(torch::nn::Module& module) const {
  const Plain plain;
  const std::vector<at::Tensor> variables = recorded_variables(*tape_, module);
  Storages storages = still_held(*tape_);
  std::vector<size_t> wanted;
  for (const at::Tensor& variable : variables) {
    const size_t storage = *number_of(*tape_, variable);
    if (!storages[storage]) add_once(wanted, storage);
  }
  const Storages made = replay(*tape_, wanted);
  for (const size_t storage : wanted) {
    storages[storage] = made[storage];
    tape_->materialized.insert_or_assign(storage, made[storage].getWeakStorageImpl());
  }
  for (const at::Tensor& variable : variables) {
    const auto storage = number_of(*tape_, variable);  // none: a second name, done already
    if (storage) assign_data(variable, on_storage(storages[*storage], variable));
  }
}

void assign_data(const at::Tensor& variable, const at::Tensor& data) {
  if (variable.sizes() != data.sizes() || variable.dtype() != data.dtype()) {
    throw std::invalid_argument(c10::str("assign_data: ", variable.sizes(), " ", variable.dtype(),
                                         " cannot stand on ", data.sizes(), " ", data.dtype()));
  }
  const bool moves = variable.device() != data.device();
  variable.unsafeGetTensorImpl()->shallow_copy_from(data.getIntrusivePtr());
  // As set_data() does: a node that adds up gradients for the old device is of no use any more.
  auto* autograd = torch::autograd::impl::get_autograd_meta(variable);
  if (moves && autograd) autograd->grad_accumulator_.reset();
}

at::Tensor DeferredInit::materialize_tensor(const at::Tensor& tensor) const {
  const auto storage = number_of(*tape_, tensor);
  if (!storage) return tensor;
  const Plain plain;
  return on_storage(replay(*tape_, {*storage})[*storage], tensor);
}

std::vector<std::string> DeferredInit::operations() const {
  std::vector<std::string> names;
  for (const Tape::Operation& operation : tape_->operations)
    names.push_back(name_of(operation.op));
  return names;
}

}  // namespace fsdp
