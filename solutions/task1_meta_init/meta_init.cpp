#include <c10/util/ScopeExit.h>
#include <meta_init.h>
#include <nn/construction.h>
#include <torch/library.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace fsdp {
namespace {

// A recorded tensor is known by its meta storage and not by its TensorImpl: torch::empty() wraps
// what the dispatcher returned into another one, and a write through one view shows in the others.
using StorageSet = std::unordered_set<const c10::StorageImpl*>;
using StorageMap = std::unordered_map<const c10::StorageImpl*, c10::Storage>;

struct RecordedCall {
  OperatorHandle op;
  Values arguments;  // a recorded tensor: its meta storage under the sizes it had then; another
                     // tensor: a copy, since it may change before the replay
  std::vector<c10::Storage> results;  // meta storages of the tensors returned; owned, so that no
                                      // address is used twice while the tape lives
  at::Generator generator;            // the call draws from it; undefined: it draws nothing
  at::Tensor generator_state;         // [5056] bytes, from before the call drew
};

// Returns a tensor like `tensor` on the storage that `places` has for its storage.
at::Tensor moved(const at::Tensor& tensor, const StorageMap& places) {
  return on_storage(places.at(storage_of(tensor)), tensor);
}

}  // namespace

struct Tape {
  std::vector<RecordedCall> calls;
  StorageSet made;   // meta storages of recorded tensors, kept alive by `calls`
  bool draws{true};  // random operations move their generators

  // The real storages that materialize_module() has put in place of meta storages, for its later
  // calls. The pointers are weak, because the modules own these storages.
  std::unordered_map<const c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> in_modules;

  bool recorded(const at::Tensor& tensor) const { return made.count(storage_of(tensor)) != 0; }
  bool must_defer(const OperatorHandle& op, const Values& arguments) const;
  Values defer(const OperatorHandle& op, const Values& arguments);
  std::optional<Values> perform_on_meta(const OperatorHandle& op, const Values& arguments) const;
  Values perform_now(const OperatorHandle& op, const Values& arguments) const;
  void draw(const RecordedCall& call) const;

  StorageMap replay(const std::vector<const RecordedCall*>& chosen) const;
  std::vector<const RecordedCall*> needed_for(StorageSet storages) const;
  at::Tensor materialize(const at::Tensor& tensor) const;
  StorageMap places_of(const std::vector<at::Tensor>& tensors);
};

namespace {

thread_local Tape* recording = nullptr;

// The fallback of every operator while a construction is recorded. It excludes its own key first.
// Otherwise the calls below, and the operators that they call, would come back here without end.
void record(const OperatorHandle& op, c10::DispatchKeySet, Values* stack) {
  c10::impl::ExcludeDispatchKeyGuard not_inside(c10::DispatchKey::DeferredInit);
  const Values arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  const Values results =
      recording->must_defer(op, arguments) ? recording->defer(op, arguments) : call(op, arguments);
  stack->insert(stack->end(), results.begin(), results.end());
}

TORCH_LIBRARY_IMPL(_, DeferredInit, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&record>());
}

void record_on(Tape& tape, const std::function<void()>& construct) {
  if (recording) {
    throw std::logic_error(
        "DeferredInit: a construction is being recorded already; record the outermost module once");
  }
  recording = &tape;
  const auto stop = c10::make_scope_exit([] { recording = nullptr; });
  c10::impl::IncludeDispatchKeyGuard redirect(c10::DispatchKey::DeferredInit);
  call_constructor(construct);
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

// Returns whether to defer the call. An operation whose tensors were all made before the
// construction is performed as usual, even if it writes to them.
bool Tape::must_defer(const OperatorHandle& op, const Values& arguments) const {
  if (is_factory(op)) return !is_filled_by_pointer(op, arguments);
  return std::ranges::any_of(tensors_in(arguments), [&](auto& tensor) { return recorded(tensor); });
}

Values Tape::defer(const OperatorHandle& op, const Values& arguments) {
  refuse_other_devices(op, arguments);
  RecordedCall call{op, {}, {}, {}, {}};
  bool changes = false;         // the call changes a recorded tensor
  bool changes_before = false;  // the call changes a tensor made before the construction
  call.arguments = map_tensors(op, arguments, [&](const at::Tensor& tensor, bool written) {
    if (written) (recorded(tensor) ? changes : changes_before) = true;
    // variable_data() is a TensorImpl of its own, which keeps the sizes of now: t_() and resize_()
    // change those of the constructor's tensor.
    return recorded(tensor) ? at::Tensor(tensor.variable_data()) : copy_of(tensor);
  });
  if (is_random(op)) {
    call.generator = generator_of(arguments);
    call.generator_state = call.generator.get_state();
  }

  std::optional<GeneratorStateScope> undrawn;
  if (!draws) undrawn.emplace(call.generator, call.generator_state);
  std::optional<Values> results;  // a write to a tensor made before cannot wait for a replay
  if (!changes_before) results = perform_on_meta(op, arguments);
  if (draws && results && is_random(op)) draw(call);
  if (!results) results = perform_now(op, arguments);

  for (const at::Tensor& tensor : tensors_in(*results)) {
    if (!tensor.has_storage()) return *results;  // sparse: made now, and not deferred
    call.results.push_back(tensor.storage());
    if (tensor.is_meta()) changes |= made.insert(storage_of(tensor)).second;
  }
  // Otherwise the call made a view or read sizes, and a replay does not need it.
  if (changes) calls.push_back(std::move(call));
  return *results;
}

// Returns nothing if the meta device cannot perform the call.
std::optional<Values> Tape::perform_on_meta(const OperatorHandle& op,
                                            const Values& arguments) const {
  try {
    Values results =
        call_on(at::kMeta, op, map_tensors(op, arguments, [&](const at::Tensor& tensor, bool) {
                  return recorded(tensor) ? tensor : empty_like_on(at::kMeta, tensor);
                }));
    const bool sparse = std::ranges::any_of(tensors_in(results),
                                            [](auto& tensor) { return !tensor.has_storage(); });
    return sparse ? std::nullopt : std::optional(results);
  } catch (const c10::Error&) {
    // If it is a mistake of the constructor, perform_now() throws what eager construction would.
    return std::nullopt;
  }
}

// Performs the call on values at once: item() and nonzero() need them, and a tensor made before the
// construction must change now. The new tensors among the results are deferred nevertheless, so the
// replay will perform the call again.
Values Tape::perform_now(const OperatorHandle& op, const Values& arguments) const {
  StorageMap origin;  // the storage of a value -> the storage of the argument that it stands for
  Values real = map_tensors(op, arguments, [&](const at::Tensor& tensor, bool) {
    const at::Tensor value = materialize(tensor);
    if (value.has_storage()) origin.emplace(storage_of(value), tensor.storage());
    return value;
  });
  Values results = call_on(at::kCPU, op, std::move(real));
  for (c10::IValue& value : results) {
    value = map_tensors(value, [&](const at::Tensor& tensor) {
      if (!tensor.has_storage()) return tensor;
      const bool is_new = origin.count(storage_of(tensor)) == 0;
      return is_new ? empty_like_on(at::kMeta, tensor) : moved(tensor, origin);
    });
  }
  return results;
}

// Moves the generator as eager construction would, on scratch memory that is freed at once. The
// scratch memory has the strides too: normal_() draws in another order into a strided tensor. An
// argument that the call only reads, such as the probabilities of bernoulli_(), needs its values.
void Tape::draw(const RecordedCall& call) const {
  call_on(at::kCPU, call.op,
          map_tensors(call.op, call.arguments, [&](const at::Tensor& tensor, bool written) {
            return written ? empty_like_on(at::kCPU, tensor) : materialize(tensor);
          }));
}

// Performs the `chosen` calls in order. Returns the real storage for each of their meta storages.
StorageMap Tape::replay(const std::vector<const RecordedCall*>& chosen) const {
  StorageMap real;
  for (const RecordedCall* call : chosen) {
    const GeneratorStateScope rewound(call->generator, call->generator_state);
    // A copy of the tape's copy: the call may change it, or return a view of it to the caller of
    // replay(), and the next replay starts from the same values.
    const Values results =
        call_on(at::kCPU, call->op,
                map_tensors(call->op, call->arguments, [&](const at::Tensor& tensor, bool) {
                  return recorded(tensor) ? moved(tensor, real) : copy_of(tensor);
                }));

    auto meta = call->results.begin();
    for (const at::Tensor& tensor : tensors_in(results))
      real.emplace((meta++)->unsafeGetStorageImpl(), tensor.storage());
  }
  return real;
}

void DeferredInit::materialize_module(torch::nn::Module& module) const {
  std::vector<at::Tensor> tensors = module.parameters();
  for (const at::Tensor& buffer : module.buffers())
    tensors.push_back(buffer);

  const StorageMap places = tape_->places_of(tensors);
  for (const at::Tensor& tensor : tensors) {
    if (tape_->recorded(tensor)) assign_data(tensor, moved(tensor, places));
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

// Returns a real storage for each recorded tensor of `tensors`: the storage from an earlier call of
// materialize_module(), while it is alive, so that shared memory stays shared; otherwise a new one.
StorageMap Tape::places_of(const std::vector<at::Tensor>& tensors) {
  StorageMap places;
  StorageSet missing;
  for (const at::Tensor& tensor : tensors) {
    if (!recorded(tensor)) continue;
    const auto known = in_modules.find(storage_of(tensor));
    auto alive = known == in_modules.end() ? nullptr : known->second.lock();
    if (alive) {
      places.emplace(storage_of(tensor), c10::Storage(std::move(alive)));
    } else {
      missing.insert(storage_of(tensor));
    }
  }
  StorageMap made_now = replay(needed_for(missing));
  for (const c10::StorageImpl* storage : missing) {
    const c10::Storage& real = places[storage] = made_now.at(storage);
    in_modules.insert_or_assign(storage, real.getWeakStorageImpl());
  }
  return places;
}

// Returns, in order, the calls that the values in `storages` depend on. Searches from the end: a
// storage is needed from the last call that changes it back to the call that made it.
std::vector<const RecordedCall*> Tape::needed_for(StorageSet storages) const {
  std::vector<const RecordedCall*> needed;
  for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
    StorageSet used;
    bool changes = false;
    map_tensors(call->op, call->arguments, [&](const at::Tensor& tensor, bool written) {
      used.insert(storage_of(tensor));
      changes |= written && storages.count(storage_of(tensor)) != 0;
      return tensor;
    });
    for (const auto& storage : call->results) {
      changes |= storages.count(storage.unsafeGetStorageImpl()) != 0;
    }
    if (!changes) continue;
    needed.push_back(&*call);
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
  for (const RecordedCall& call : tape_->calls)
    names.push_back(name_of(call.op));
  return names;
}

}  // namespace fsdp
