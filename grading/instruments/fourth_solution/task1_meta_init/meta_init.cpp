#include <meta_init.h>
#include <nn/construction.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <algorithm>
#include <iterator>
#include <ranges>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace fsdp {
namespace {

using StorageKey = const c10::StorageImpl*;
using StorageKeys = std::unordered_set<StorageKey>;

// What is done while tensors are recorded or replayed is not itself recorded.
struct Unseen {
  c10::impl::ExcludeDispatchKeyGuard guard{c10::DispatchKey::DeferredInit};
};

// The tensor from which a factory takes only sizes and options: that of zeros_like(), new_empty().
at::Tensor pattern_of(const OperatorHandle& op, const Values& arguments) {
  const auto self = op.schema().argumentIndexWithName("self");
  if (!is_factory(op) || !self || !arguments[*self].isTensor()) return {};
  return arguments[*self].toTensor();
}

// A TensorImpl of its own on the same storage: in-place changes of sizes do not reach it.
at::Tensor snapshot_of(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return tensor.detach();
}

// A meta tensor that takes the place of one with values.
at::Tensor meta_like(const at::Tensor& tensor) {
  at::Tensor meta = empty_like_on(at::kMeta, tensor);
  return tensor.requires_grad() ? meta.requires_grad_() : meta;
}

bool any_tensor(const Values& values, const std::function<bool(const at::Tensor&)>& is_such) {
  return std::ranges::any_of(values, [&](const c10::IValue& value) {
    return std::ranges::any_of(tensors_in(value), is_such);
  });
}

// The arguments of one call with other tensors in their places, and the way back.
class StandIns {
 public:
  using Choose = std::function<at::Tensor(const at::Tensor& tensor, bool written)>;

  StandIns(const OperatorHandle& op, const Values& arguments, const Choose& choose)
      : arguments_(map_tensors(op, arguments, [&](const at::Tensor& tensor, bool written) {
          return pairs_.emplace_back(tensor, choose(tensor, written)).stand_in;
        })) {}

  const Values& arguments() const { return arguments_; }

  // The results of a call on the stand-ins, as the caller of the originals must see them: the
  // originals themselves, views of them, or else deferred tensors. A sparse tensor has no storage
  // by which one could defer it, so it stays.
  Values results_for_caller(Values results) const {
    std::ranges::for_each(pairs_, &Pair::follow_sizes);
    for (c10::IValue& result : results) {
      result = map_tensors(result, [&](const at::Tensor& tensor) { return for_caller(tensor); });
    }
    return results;
  }

 private:
  struct Pair {
    at::Tensor original, stand_in;

    void follow_sizes() const {
      if (!original.has_storage() || original.sizes() == stand_in.sizes()) return;
      const at::NoGradGuard no_grad;
      original.set_(original.storage(), stand_in.storage_offset(), stand_in.sizes(),
                    stand_in.strides());
    }
  };

  const Pair* that_shares(const at::Tensor& tensor) const {
    const StorageKey key = storage_of(tensor);
    const auto pair = std::ranges::find_if(
        pairs_, [&](const Pair& pair) { return key && storage_of(pair.stand_in) == key; });
    return pair == pairs_.end() ? nullptr : &*pair;
  }

  at::Tensor for_caller(const at::Tensor& tensor) const {
    const auto same = std::ranges::find_if(
        pairs_, [&](const Pair& pair) { return pair.stand_in.is_same(tensor); });
    if (same != pairs_.end()) return same->original;
    if (const Pair* pair = that_shares(tensor)) {
      return pair->original.is_same(pair->stand_in) ? tensor
                                                    : on_storage(pair->original.storage(), tensor);
    }
    return storage_of(tensor) ? meta_like(tensor) : tensor;
  }

  std::vector<Pair> pairs_;
  Values arguments_;
};

// Calls `op` on the meta device. Returns nothing if this device cannot do it, if a result is
// sparse, or if the call writes to a tensor that is not deferred.
std::optional<Values> call_on_meta(const OperatorHandle& op, const Values& arguments,
                                   const std::function<bool(const at::Tensor&)>& deferred) try {
  const StandIns metas(op, arguments, [&](const at::Tensor& tensor, bool written) {
    if (written && !deferred(tensor)) C10_THROW_ERROR(Error, "writes what is not deferred");
    return deferred(tensor) ? tensor : meta_like(tensor);
  });
  Values results = call_on(at::kMeta, op, metas.arguments());
  if (any_tensor(results, [](const at::Tensor& tensor) { return !storage_of(tensor); })) return {};
  return results;
} catch (const c10::Error&) {
  return {};  // a mistake of the caller is thrown again where the call has its values
}

// The operations of one thread, as long as a Session is there.
class Interceptor {
 public:
  virtual ~Interceptor() = default;

  Values intercept(const OperatorHandle& op, const Values& arguments) {
    refuse_other_devices(op, arguments);
    if (is_filled_by_pointer(op, arguments)) return call(op, arguments);
    const auto is_deferred = [this](const at::Tensor& tensor) { return deferred(tensor); };
    if (is_factory(op) || any_tensor(arguments, is_deferred)) return defer(op, arguments);
    return pass(op, arguments);
  }

 protected:
  virtual bool deferred(const at::Tensor& tensor) const = 0;
  virtual Values defer(const OperatorHandle& op, const Values& arguments) = 0;
  virtual Values pass(const OperatorHandle& op, const Values& arguments) = 0;
};

// While it lives, this thread's operations go to an Interceptor. A thread has at most one.
class Session {
 public:
  explicit Session(Interceptor& interceptor) {
    if (active) {
      throw std::logic_error(
          "DeferredInit: a construction is deferred already; only the outermost one may be");
    }
    active = &interceptor;
    redirect_.emplace(c10::DispatchKey::DeferredInit);
  }
  ~Session() { active = nullptr; }
  Session(const Session&) = delete;

  static Values dispatch(const OperatorHandle& op, const Values& arguments) {
    const Unseen unseen;
    return active ? active->intercept(op, arguments) : call(op, arguments);
  }

 private:
  static thread_local Interceptor* active;
  std::optional<c10::impl::IncludeDispatchKeyGuard> redirect_;
};

thread_local Interceptor* Session::active = nullptr;

void fallback(const OperatorHandle& op, torch::jit::Stack* stack) {
  const auto count = static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  Values arguments(std::make_move_iterator(stack->end() - count),
                   std::make_move_iterator(stack->end()));
  stack->erase(stack->end() - count, stack->end());
  std::ranges::move(Session::dispatch(op, arguments), std::back_inserter(*stack));
}

TORCH_LIBRARY_IMPL(_, DeferredInit, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

// One operation of the tape. Its tensors are snapshots from before the call: meta tensors on the
// storages of the tape, which they own, and copies of tensors that were made before.
struct Entry {
  explicit Entry(OperatorHandle op) : op(std::move(op)) {}

  OperatorHandle op;
  Values arguments;
  Values results;
  std::optional<at::Tensor> generator_state;  // [5056] from before the call, if it is random
  StorageKeys needs;                          // whose values it reads, or overwrites in part
  StorageKeys affects;                        // which it makes or writes

  bool affects_any(const StorageKeys& keys) const {
    return std::ranges::any_of(affects, [&](StorageKey key) { return keys.contains(key); });
  }
};

}  // namespace

struct Tape {
  std::vector<Entry> entries;
  StorageKeys storages;  // made by an entry
  // What materialize_module() has made of a storage, as long as somebody holds it.
  std::unordered_map<StorageKey, c10::weak_intrusive_ptr<c10::StorageImpl>> materialized;

  bool holds(const at::Tensor& tensor) const {
    return tensor.defined() && storages.contains(storage_of(tensor));
  }

  // The entries on which the values in `needed` depend, in order.
  std::vector<const Entry*> dependencies(StorageKeys needed) const {
    std::vector<const Entry*> found;
    for (const Entry& entry : entries | std::views::reverse) {
      if (!entry.affects_any(needed)) continue;
      needed.insert(entry.needs.begin(), entry.needs.end());
      found.push_back(&entry);
    }
    std::ranges::reverse(found);
    return found;
  }

  void add(Entry entry) {
    storages.insert(entry.affects.begin(), entry.affects.end());
    entries.push_back(std::move(entry));
  }
};

namespace {

// Part of the tape, run on real memory. Frees with itself what nobody else holds.
class Replay {
 public:
  Replay(const Tape& tape, const StorageKeys& wanted) : tape_(tape) {
    const Unseen unseen;
    const at::NoGradGuard no_grad;
    std::ranges::for_each(tape.dependencies(wanted), [&](const Entry* entry) { run(*entry); });
  }

  at::Tensor real(const at::Tensor& tensor) const {
    const Unseen unseen;
    return on_storage(storages_.at(storage_of(tensor)), tensor);
  }

 private:
  void run(const Entry& entry) {
    const Rewound rewound(entry.generator_state ? generator_of(entry.arguments) : at::Generator(),
                          entry.generator_state.value_or(at::Tensor()));
    const at::Tensor pattern = pattern_of(entry.op, entry.arguments);
    const Values results = call_on(
        at::kCPU, entry.op,
        map_tensors(entry.op, entry.arguments, [&](const at::Tensor& tensor, bool) {
          if (pattern.defined() && tensor.is_same(pattern)) return tensor;
          return tape_.holds(tensor) ? real(tensor) : copy_of(tensor);  // it keeps its own copy
        }));
    for (size_t i = 0; i < results.size(); ++i)
      bind(tensors_in(entry.results[i]), tensors_in(results[i]));
  }

  void bind(const std::vector<at::Tensor>& recorded, const std::vector<at::Tensor>& computed) {
    for (size_t i = 0; i < recorded.size(); ++i) {
      if (tape_.holds(recorded[i]))
        storages_.try_emplace(storage_of(recorded[i]), computed[i].storage());
    }
  }

  const Tape& tape_;
  std::unordered_map<StorageKey, c10::Storage> storages_;
};

// Puts a construction on the tape.
class Recorder : public Interceptor {
 public:
  explicit Recorder(Tape& tape) : tape_(tape) {}

 protected:
  bool deferred(const at::Tensor& tensor) const override { return tape_.holds(tensor); }

  Values pass(const OperatorHandle& op, const Values& arguments) override {
    return call(op, arguments);
  }

  Values defer(const OperatorHandle& op, const Values& arguments) override {
    Entry entry = begin_entry(op, arguments);
    std::optional<Values> results =
        call_on_meta(op, arguments, [this](const at::Tensor& tensor) { return deferred(tensor); });
    if (!results) {
      results = call_at_once(op, arguments);
    } else if (is_random(op)) {
      draw_into_scratch(op, arguments);
    }
    finish_entry(std::move(entry), *results);
    return *results;
  }

 private:
  Entry begin_entry(const OperatorHandle& op, const Values& arguments) const {
    Entry entry(op);
    if (is_random(op)) entry.generator_state = generator_of(arguments).get_state();
    const at::Tensor pattern = pattern_of(op, arguments);
    entry.arguments = map_tensors(op, arguments, [&](const at::Tensor& tensor, bool written) {
      const bool only_described = pattern.defined() && tensor.is_same(pattern);
      if (!deferred(tensor)) {
        return only_described && storage_of(tensor) ? empty_like_on(at::kMeta, tensor)
                                                    : copy_of(tensor);
      }
      if (!only_described) entry.needs.insert(storage_of(tensor));
      if (written) entry.affects.insert(storage_of(tensor));
      return snapshot_of(tensor);
    });
    return entry;
  }

  // Views, and calls that return no tensor, need no replay: they affect no storage.
  void finish_entry(Entry entry, const Values& results) {
    for (const c10::IValue& result : results) {
      entry.results.push_back(map_tensors(result, [&](const at::Tensor& tensor) {
        if (!tensor.is_meta() || !storage_of(tensor)) return tensor;
        if (!deferred(tensor)) entry.affects.insert(storage_of(tensor));
        return snapshot_of(tensor);
      }));
    }
    if (!entry.affects.empty()) tape_.add(std::move(entry));
  }

  using Selects = std::function<bool(const at::Tensor& tensor, bool written)>;

  // Real values for the deferred arguments of a call that `reads_values` selects.
  Replay replay_arguments(const OperatorHandle& op, const Values& arguments,
                          const Selects& reads_values) const {
    StorageKeys keys;
    map_tensors(op, arguments, [&](const at::Tensor& tensor, bool written) {
      if (deferred(tensor) && reads_values(tensor, written)) keys.insert(storage_of(tensor));
      return tensor;
    });
    return Replay(tape_, keys);
  }

  Values call_at_once(const OperatorHandle& op, const Values& arguments) const {
    const Replay replay =
        replay_arguments(op, arguments, [](const at::Tensor&, bool) { return true; });
    const StandIns reals(op, arguments, [&](const at::Tensor& tensor, bool) {
      return deferred(tensor) ? replay.real(tensor) : tensor;
    });
    return reals.results_for_caller(call_on(at::kCPU, op, reals.arguments()));
  }

  // How many numbers a call draws may depend on the values that it reads, but not on those that it
  // replaces.
  void draw_into_scratch(const OperatorHandle& op, const Values& arguments) const {
    const at::NoGradGuard no_grad;
    const at::Tensor pattern = pattern_of(op, arguments);
    const auto is_pattern = [&](const at::Tensor& tensor) {
      return pattern.defined() && tensor.is_same(pattern);
    };
    const Replay replay = replay_arguments(
        op, arguments,
        [&](const at::Tensor& tensor, bool written) { return !written && !is_pattern(tensor); });
    call_on(at::kCPU, op, map_tensors(op, arguments, [&](const at::Tensor& tensor, bool written) {
              if (!deferred(tensor) || is_pattern(tensor)) return tensor;
              return written ? empty_like_on(at::kCPU, tensor) : replay.real(tensor);
            }));
  }

  Tape& tape_;
};

// Names and sizes only.
class Sizer : public Interceptor {
 protected:
  bool deferred(const at::Tensor& tensor) const override { return tensor.is_meta(); }

  Values pass(const OperatorHandle& op, const Values& arguments) override {
    const auto undone = undo_draws(op, arguments);
    return call(op, arguments);
  }

  Values defer(const OperatorHandle& op, const Values& arguments) override {
    std::optional<Values> results =
        call_on_meta(op, arguments, [](const at::Tensor& tensor) { return tensor.is_meta(); });
    if (results) return *results;
    const auto undone = undo_draws(op, arguments);
    const StandIns fillers(op, arguments, [](const at::Tensor& tensor, bool written) {
      if (!tensor.is_meta()) return written ? copy_of(tensor) : tensor;
      // As good as any values: no index out of range, no probabilities whose sum is 0.
      const bool whole = at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false);
      const at::NoGradGuard no_grad;
      return empty_like_on(at::kCPU, tensor).fill_(whole ? 0 : 1);
    });
    return fillers.results_for_caller(call_on(at::kCPU, op, fillers.arguments()));
  }

 private:
  static std::unique_ptr<Rewound> undo_draws(const OperatorHandle& op, const Values& arguments) {
    if (!is_random(op)) return nullptr;
    const at::Generator generator = generator_of(arguments);
    return std::make_unique<Rewound>(generator, generator.get_state());
  }
};

void run_under(Interceptor& interceptor, const std::function<void()>& construct) {
  const Session session(interceptor);
  call_constructor(construct);
}

}  // namespace

void construct_on_meta(const std::function<void()>& construct) {
  Sizer sizer;
  run_under(sizer, construct);
}

DeferredInit::DeferredInit(const std::function<void()>& construct)
    : tape_(std::make_unique<Tape>()) {
  Recorder recorder(*tape_);
  run_under(recorder, construct);
}

DeferredInit::~DeferredInit() = default;

void DeferredInit::materialize_module(torch::nn::Module& module) const {
  const Unseen unseen;
  std::vector<at::Tensor> tensors = module.parameters();
  std::ranges::copy(module.buffers(), std::back_inserter(tensors));
  for (const at::Tensor& tensor : tensors) {
    if (!tape_->holds(tensor)) continue;  // a tied one has its values by now
    const StorageKey key = storage_of(tensor);
    const auto earlier = tape_->materialized.find(key);
    auto alive = earlier == tape_->materialized.end() ? nullptr : earlier->second.lock();
    const c10::Storage storage =
        alive ? c10::Storage(std::move(alive)) : Replay(*tape_, {key}).real(tensor).storage();
    tape_->materialized.insert_or_assign(key, storage.getWeakStorageImpl());
    assign_data(tensor, on_storage(storage, tensor));
  }
}

void assign_data(const at::Tensor& variable, const at::Tensor& data) {
  if (variable.sizes() != data.sizes() || variable.dtype() != data.dtype()) {
    throw std::invalid_argument(c10::str("assign_data: ", data.sizes(), " of ", data.dtype(),
                                         " for a variable ", variable.sizes(), " of ",
                                         variable.dtype()));
  }
  const bool moves = variable.device() != data.device();
  variable.unsafeGetTensorImpl()->shallow_copy_from(data.getIntrusivePtr());
  // A node that accumulates on the old device is of no use any more; set_data() drops it too.
  auto* meta = moves ? torch::autograd::impl::get_autograd_meta(variable) : nullptr;
  if (meta) meta->grad_accumulator_.reset();
}

at::Tensor DeferredInit::materialize_tensor(const at::Tensor& tensor) const {
  if (!tape_->holds(tensor)) return tensor;
  return Replay(*tape_, {storage_of(tensor)}).real(tensor);
}

std::vector<std::string> DeferredInit::operations() const {
  std::vector<std::string> names;
  std::ranges::transform(tape_->entries, std::back_inserter(names),
                         [](const Entry& entry) { return name_of(entry.op); });
  return names;
}

}  // namespace fsdp
