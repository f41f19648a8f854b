#include <c10/util/ScopeExit.h>
#include <c10/util/SmallVector.h>
#include <meta_init.h>
#include <nn/construction.h>
#include <torch/library.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <ranges>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>

namespace fsdp {
namespace {

// A recorded construction is a graph of versions. A node makes the next version of one or more
// memories out of earlier versions. A memory is named by its storage on the meta device.
using Memory = const c10::StorageImpl*;
using NodeId = size_t;  // its place in time: whatever a node needs has a smaller one

struct Constant {   // what an operation read of a tensor from outside
  at::Tensor span;  // [elements], its memory from its first to its last element
};

struct Call {
  OperatorHandle op;
  Values arguments;                 // as they were at the time, on meta
  std::vector<at::Tensor> results;  // the same; undefined: one that has no memory on meta
  at::Generator generator;          // undefined unless the call draws
  at::Tensor state;                 // [5056] bytes, of the generator, from before
};

struct Node {
  std::variant<Constant, Call> what;
  std::vector<Memory> touches;  // all memories that it reads or makes
  std::vector<Memory> makes;    // new versions of these
  std::set<NodeId> needs;       // the versions that it starts from
};

// The state of one memory while the construction goes on, and at its end.
struct Block {
  c10::Storage meta;  // owned, so that no other storage gets its address
  NodeId version{};   // the node that made its present values
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> real{};  // where a module has it
};

using RealMemories = std::unordered_map<Memory, c10::Storage>;

// All memories of a value or of the values of a call, with those that are given as storages.
std::vector<Memory> memories_in(const Values& values) {
  std::vector<Memory> found;
  for (const c10::IValue& value : values) {
    if (value.isStorage()) found.push_back(value.toStorage().unsafeGetStorageImpl());
    for (const at::Tensor& tensor : tensors_in(value))
      if (Memory memory = storage_of(tensor)) found.push_back(memory);
  }
  return found;
}

// What on_storage() does. A tensor that stands for a number goes on doing so.
at::Tensor placed(const c10::Storage& memory, const at::Tensor& like) {
  at::Tensor tensor = on_storage(memory, like);
  if (like.unsafeGetTensorImpl()->is_wrapped_number())
    tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

// A copy of the memory that a tensor views, with its gaps: whatever its strides are, they fit.
at::Tensor span_of(const at::Tensor& tensor) {
  int64_t span = tensor.numel() == 0 ? 0 : 1;
  for (int64_t dim = 0; span > 0 && dim < tensor.dim(); ++dim)
    span += (tensor.size(dim) - 1) * tensor.stride(dim);
  return tensor.detach().as_strided({span}, {1}).clone();
}

c10::Storage new_memory(c10::Device device, size_t bytes) {
  return at::empty({static_cast<int64_t>(bytes)}, at::dtype(at::kByte).device(device)).storage();
}

}  // namespace

struct Tape {
  bool records;  // else it only knows its memories
  std::deque<Node> nodes{};
  std::unordered_map<Memory, Block> blocks{};

  bool knows(Memory memory) const { return blocks.contains(memory); }
  bool knows(const at::Tensor& tensor) const {
    return tensor.defined() && knows(storage_of(tensor));
  }

  // Every memory that the node makes has a new version from now on.
  void commit(Node node, const std::vector<c10::Storage>& made) {
    const NodeId id = nodes.size();
    for (const c10::Storage& storage : made) {
      Memory memory = storage.unsafeGetStorageImpl();
      node.makes.push_back(memory);
      blocks.try_emplace(memory, Block{storage}).first->second.version = id;
    }
    if (!records) return;
    node.touches.insert(node.touches.end(), node.makes.begin(), node.makes.end());
    nodes.push_back(std::move(node));
  }
};

namespace {

// The nodes that lead to the present versions of `wanted`, in the order of time.
std::set<NodeId> history_of(const Tape& tape, const std::set<Memory>& wanted) {
  std::set<NodeId> history;
  std::vector<NodeId> open;
  for (Memory memory : wanted)
    open.push_back(tape.blocks.at(memory).version);
  while (!open.empty()) {
    const NodeId id = open.back();
    open.pop_back();
    if (!history.insert(id).second) continue;
    open.insert(open.end(), tape.nodes[id].needs.begin(), tape.nodes[id].needs.end());
  }
  return history;
}

class Replay {
 public:
  Replay(const Tape& tape, std::set<Memory> wanted)
      : tape_(tape), wanted_(std::move(wanted)), history_(history_of(tape, wanted_)) {
    for (NodeId id : history_) {
      for (Memory memory : tape_.nodes[id].touches)
        last_use_[memory] = id;
      if (std::holds_alternative<Call>(tape_.nodes[id].what))
        changed_.insert(tape_.nodes[id].makes.begin(), tape_.nodes[id].makes.end());
    }
  }

  // Computes the wanted memories. Other memory is freed after its last use.
  RealMemories run() && {
    const c10::impl::ExcludeDispatchKeyGuard as_usual(c10::DispatchKey::DeferredInit);
    const at::NoGradGuard no_grad;
    for (NodeId id : history_) {
      const Node& node = tape_.nodes[id];
      if (const Constant* constant = std::get_if<Constant>(&node.what))
        take(node.makes.front(), *constant);
      else
        again(std::get<Call>(node.what));
      for (Memory memory : node.touches)
        if (last_use_.at(memory) == id && !wanted_.contains(memory)) real_.erase(memory);
    }
    return std::move(real_);
  }

 private:
  // The tape keeps its copy as it is: who changes or gets the memory, gets one of his own.
  void take(Memory memory, const Constant& constant) {
    const bool shared = !changed_.contains(memory) && !wanted_.contains(memory);
    real_[memory] = (shared ? constant.span : constant.span.clone()).storage();
  }

  void again(const Call& call) {
    Values arguments = map_tensors(call.op, call.arguments, [&](const at::Tensor& tensor, bool) {
      Memory memory = storage_of(tensor);
      return memory ? placed(real_.at(memory), tensor) : tensor.clone();
    });
    for (c10::IValue& argument : arguments)
      if (argument.isStorage()) argument = real_.at(argument.toStorage().unsafeGetStorageImpl());
    const Rewound rewound(call.generator, call.state);
    const std::vector<at::Tensor> results =
        tensors_in(call_on(at::kCPU, call.op, std::move(arguments)));
    for (size_t i = 0; i < std::min(results.size(), call.results.size()); ++i)
      if (call.results[i].defined()) found(call.results[i], results[i]);
  }

  void found(const at::Tensor& recorded, const at::Tensor& result) {
    Memory memory = storage_of(recorded);
    const auto old = real_.find(memory);
    if (old != real_.end() && old->second.is_alias_of(result.storage())) return;
    // Some kernels lay out a new tensor in another way than their likes on the meta device. What
    // was recorded of the memory later means the layout of the latter.
    real_[memory] = result.strides() == recorded.strides()
                        ? result.storage()
                        : empty_like_on(at::kCPU, recorded).copy_(result).storage();
  }

  const Tape& tape_;
  std::set<Memory> wanted_;
  std::set<NodeId> history_;
  std::unordered_map<Memory, NodeId> last_use_;
  std::set<Memory> changed_;  // by calls
  RealMemories real_;
};

// Whether the error says that there was no memory to work on, or no kernel without memory. All
// others are the constructor's.
bool is_about_meta(const c10::Error& error) {
  const auto says = [text = std::string_view(error.what())](std::string_view part) {
    return text.find(part) != std::string_view::npos;
  };
  return dynamic_cast<const c10::NotImplementedError*>(&error) || says("data is not allocated") ||
         says("on meta");
}

// Takes the place of every operator while a construction runs.
class Recorder {
 public:
  explicit Recorder(Tape& tape) : tape_(tape) {}

  Values operator()(const OperatorHandle& op, Values arguments) {
    refuse_other_devices(op, arguments);
    const bool ours = is_factory(op) || std::ranges::any_of(memories_in(arguments), known());
    if (!ours || is_filled_by_pointer(op, arguments)) return call(op, std::move(arguments));
    if (!needs_values(op, arguments))
      if (std::optional<Values> results = on_meta(op, arguments)) return std::move(*results);
    return at_once(op, arguments);
  }

 private:
  // A call before it becomes a node, if it does.
  struct Draft {
    Node node;
    std::unordered_map<const c10::TensorImpl*, at::Tensor> stand_ins;  // of tensors from outside
    std::vector<std::pair<at::Tensor, at::Tensor>> outside;  // a stand-in, and what it stands for
    std::vector<c10::Storage> written;
  };

  std::function<bool(Memory)> known() const {
    return [this](Memory memory) { return tape_.knows(memory); };
  }

  // Whether the meta device will not do: an argument has no strides, or a tensor from outside is to
  // be changed.
  bool needs_values(const OperatorHandle& op, const Values& arguments) const {
    bool found = false;
    map_tensors(op, arguments, [&](const at::Tensor& tensor, bool written) {
      found = found || !tensor.has_storage() || (written && !tape_.knows(tensor));
      return tensor;
    });
    return found;
  }

  Draft draft(const OperatorHandle& op, const Values& arguments) const {
    Draft draft;
    const auto as_now = [&](const at::Tensor& tensor, bool written) {
      if (tape_.knows(tensor)) {
        if (written) draft.written.push_back(tensor.storage());
        return tensor.variable_data();
      }
      if (!tensor.has_storage()) return copy_of(tensor);
      at::Tensor& stand_in = draft.stand_ins[tensor.unsafeGetTensorImpl()];
      if (!stand_in.defined()) {
        stand_in = empty_like_on(at::kMeta, tensor);
        draft.outside.emplace_back(stand_in, tensor);
      }
      return stand_in.variable_data();
    };
    Call call{op, map_tensors(op, arguments, as_now), {}, {}, {}};
    if (tape_.records && is_random(op)) {
      call.generator = generator_of(arguments);
      call.state = call.generator.get_state();
    }
    draft.node.touches = memories_in(call.arguments);
    draft.node.what = std::move(call);
    return draft;
  }

  // Makes a node of the draft if the call has made or changed memory.
  void commit(Draft draft, const Values& results) {
    Call& call = std::get<Call>(draft.node.what);
    std::vector<c10::Storage> made = std::move(draft.written);
    for (const at::Tensor& result : tensors_in(results)) {
      const bool real = !result.has_storage() || !result.is_meta();
      call.results.push_back(real ? at::Tensor() : result.variable_data());
      if (!real && !tape_.knows(result)) made.push_back(result.storage());
    }
    if (made.empty()) return;
    if (tape_.records) {
      for (const auto& [stand_in, tensor] : draft.outside)
        tape_.commit({Constant{tensor}, {}, {}, {}}, {stand_in.storage()});
      for (Memory memory : draft.node.touches)
        if (tape_.knows(memory)) draft.node.needs.insert(tape_.blocks.at(memory).version);
      keep_dtype(call);
    }
    tape_.commit(std::move(draft.node), made);
  }

  // The default dtype may be another one when the call is made again.
  static void keep_dtype(Call& call) {
    const auto dtype = call.op.schema().argumentIndexWithName("dtype");
    if (!dtype || !is_factory(call.op) || !call.arguments[*dtype].isNone()) return;
    if (call.results.size() == 1 && call.results.front().defined())
      call.arguments[*dtype] = call.results.front().scalar_type();
  }

  // Keeps what the tensors from outside hold now: somebody may change them later.
  void copy_outside(Draft& draft) const {
    if (!tape_.records) return;
    for (auto& [stand_in, tensor] : draft.outside)
      tensor = span_of(tensor);
  }

  // Nothing if it turns out that the meta device cannot do it.
  std::optional<Values> on_meta(const OperatorHandle& op, const Values& arguments) {
    Draft draft = this->draft(op, arguments);
    std::optional<Values> results;
    try {
      results =
          call_on(at::kMeta, op, map_tensors(op, arguments, [&](const at::Tensor& tensor, bool) {
                    const auto stand_in = draft.stand_ins.find(tensor.unsafeGetTensorImpl());
                    return stand_in == draft.stand_ins.end() ? tensor : stand_in->second;
                  }));
    } catch (const c10::Error& error) {
      if (!is_about_meta(error)) throw;
      return std::nullopt;
    }
    const auto is_sparse = [](const at::Tensor& tensor) { return !tensor.has_storage(); };
    if (std::ranges::any_of(tensors_in(*results), is_sparse)) return std::nullopt;
    if (tape_.records && is_random(op)) draw(op, arguments);
    if (makes_memory(draft, *results)) copy_outside(draft);
    commit(std::move(draft), *results);
    return results;
  }

  bool makes_memory(const Draft& draft, const Values& results) const {
    return !draft.written.empty() || !std::ranges::all_of(memories_in(results), known());
  }

  // Moves the generator as the call does in eager construction. What is written, or described for a
  // factory, needs no values.
  void draw(const OperatorHandle& op, const Values& arguments) const {
    const RealMemories real = values_of(op, arguments, /*with_written=*/false);
    call_on(at::kCPU, op, map_tensors(op, arguments, [&](const at::Tensor& tensor, bool written) {
              if (is_factory(op) || written) return empty_like_on(at::kCPU, tensor);
              return tape_.knows(tensor) ? placed(real.at(storage_of(tensor)), tensor) : tensor;
            }));
  }

  // The real memory of the recorded tensors among the arguments; with those that are only written,
  // or without.
  RealMemories values_of(const OperatorHandle& op, const Values& arguments,
                         bool with_written) const {
    std::set<Memory> wanted;
    map_tensors(op, arguments, [&](const at::Tensor& tensor, bool written) {
      if (tape_.knows(tensor) && (with_written || !(written || is_factory(op))))
        wanted.insert(storage_of(tensor));
      return tensor;
    });
    for (const c10::IValue& argument : arguments)
      if (argument.isStorage() && tape_.knows(argument.toStorage().unsafeGetStorageImpl()))
        wanted.insert(argument.toStorage().unsafeGetStorageImpl());
    if (tape_.records) return Replay(tape_, std::move(wanted)).run();
    // Only sizes count. Ones are as good as any, and they are probabilities.
    RealMemories ones;
    map_tensors(op, arguments, [&](const at::Tensor& tensor, bool) {
      if (Memory memory = storage_of(tensor); wanted.contains(memory) && !ones.contains(memory)) {
        ones[memory] = new_memory(at::kCPU, memory->nbytes());
        at::empty({0}, tensor.options().device(at::kCPU).requires_grad(false))
            .set_(ones[memory])
            .fill_(1);
      }
      return tensor;
    });
    return ones;
  }

  // Performs the call on real memory, and puts tensors on meta in the place of what it returns.
  Values at_once(const OperatorHandle& op, const Values& arguments) {
    Draft draft = this->draft(op, arguments);
    copy_outside(draft);
    const RealMemories real = values_of(op, arguments, /*with_written=*/true);
    std::unordered_map<Memory, c10::Storage> meta_of;
    for (const auto& [memory, storage] : real)
      meta_of[storage.unsafeGetStorageImpl()] = tape_.blocks.at(memory).meta;
    std::set<Memory> from_outside;

    std::vector<std::pair<at::Tensor, at::Tensor>> pairs;  // an argument on meta, a real one
    Values real_arguments = map_tensors(op, arguments, [&](const at::Tensor& tensor, bool) {
      if (!tape_.knows(tensor)) {
        from_outside.insert(storage_of(tensor));
        return tensor;
      }
      return pairs.emplace_back(tensor, placed(real.at(storage_of(tensor)), tensor)).second;
    });
    for (c10::IValue& argument : real_arguments) {
      if (!argument.isStorage()) continue;
      const auto found = real.find(argument.toStorage().unsafeGetStorageImpl());
      if (found != real.end()) argument = found->second;
    }

    // A construction without a tape leaves the generator where it is.
    const at::Generator generator =
        !tape_.records && is_random(op) ? generator_of(arguments) : at::Generator();
    const Rewound rewound(generator, generator.defined() ? generator.get_state() : at::Tensor());
    Values results = call_on(at::kCPU, op, std::move(real_arguments));

    const auto on_meta = [&](const at::Tensor& tensor) {
      Memory memory = storage_of(tensor);
      if (!memory || from_outside.contains(memory)) return tensor;
      c10::Storage& meta = meta_of[memory];
      if (!meta) meta = new_memory(at::kMeta, memory->nbytes());
      return placed(meta, tensor);
    };
    const at::NoGradGuard no_grad;
    for (const auto& [tensor, copy] : pairs) {  // what has got other sizes or another memory
      const at::Tensor now = on_meta(copy);
      if (!now.has_storage() || !now.is_meta()) continue;
      if (now.sizes() != tensor.sizes() || now.strides() != tensor.strides() ||
          !now.is_alias_of(tensor))
        at::Tensor(tensor).set_(now.storage(), now.storage_offset(), now.sizes(), now.strides());
    }
    for (c10::IValue& result : results) {
      result = map_tensors(result, [&](const at::Tensor& tensor) {
        const auto same = std::ranges::find_if(
            pairs, [&](const auto& pair) { return pair.second.is_same(tensor); });
        return same == pairs.end() ? on_meta(tensor) : same->first;
      });
    }
    commit(std::move(draft), results);
    return results;
  }

  Tape& tape_;
};

thread_local Recorder* recorder = nullptr;  // of the construction that this thread runs

void redirect(const OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard not_inside(c10::DispatchKey::DeferredInit);
  Values arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  Values results =
      recorder ? (*recorder)(op, std::move(arguments)) : call(op, std::move(arguments));
  std::ranges::move(results, std::back_inserter(*stack));
}

void record(Tape& tape, const std::function<void()>& construct) {
  if (recorder)
    throw std::logic_error(
        "DeferredInit: this thread is recording already; only the outermost construction records");
  Recorder of_tape(tape);
  recorder = &of_tape;
  const auto ended = c10::make_scope_exit([] { recorder = nullptr; });
  const c10::impl::IncludeDispatchKeyGuard redirected(c10::DispatchKey::DeferredInit);
  call_constructor(construct);
}

TORCH_LIBRARY_IMPL(_, DeferredInit, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&redirect>());
}

}  // namespace

void construct_on_meta(const std::function<void()>& construct) {
  Tape tape{false};
  record(tape, construct);
}

DeferredInit::DeferredInit(const std::function<void()>& construct)
    : tape_(std::make_unique<Tape>(Tape{true})) {
  record(*tape_, construct);
}

DeferredInit::~DeferredInit() = default;

void DeferredInit::materialize_module(torch::nn::Module& module) const {
  std::vector<at::Tensor> variables;
  std::ranges::copy(module.parameters(), std::back_inserter(variables));
  std::ranges::copy(module.buffers(), std::back_inserter(variables));
  std::erase_if(variables, [&](const at::Tensor& variable) { return !tape_->knows(variable); });

  RealMemories memories;  // that modules hold already, then also those that are computed now
  std::set<Memory> wanted;
  for (const at::Tensor& variable : variables) {
    const auto& real = tape_->blocks.at(storage_of(variable)).real;
    if (auto alive = real ? real->lock() : c10::intrusive_ptr<c10::StorageImpl>())
      memories[storage_of(variable)] = c10::Storage(std::move(alive));
    else
      wanted.insert(storage_of(variable));
  }
  memories.merge(Replay(*tape_, wanted).run());
  for (Memory memory : wanted)
    tape_->blocks.at(memory).real = memories.at(memory).getWeakStorageImpl();

  const c10::impl::ExcludeDispatchKeyGuard as_usual(c10::DispatchKey::DeferredInit);
  // A tied variable is listed twice; the second time it is real.
  for (const at::Tensor& variable : variables)
    if (tape_->knows(variable))
      assign_data(variable, placed(memories.at(storage_of(variable)), variable));
}

void assign_data(const at::Tensor& variable, const at::Tensor& data) {
  if (variable.sizes() != data.sizes() || variable.dtype() != data.dtype()) {
    std::ostringstream message;
    message << "assign_data: the variable is " << variable.dtype() << " " << variable.sizes()
            << ", the data " << data.dtype() << " " << data.sizes();
    throw std::invalid_argument(message.str());
  }
  variable.unsafeGetTensorImpl()->shallow_copy_from(data.getIntrusivePtr());
}

at::Tensor DeferredInit::materialize_tensor(const at::Tensor& tensor) const {
  if (!tape_->knows(tensor)) return tensor;
  Memory memory = storage_of(tensor);
  const RealMemories real = Replay(*tape_, {memory}).run();
  const c10::impl::ExcludeDispatchKeyGuard as_usual(c10::DispatchKey::DeferredInit);
  return placed(real.at(memory), tensor);
}

std::vector<std::string> DeferredInit::operations() const {
  std::vector<std::string> names;
  for (const Node& node : tape_->nodes)
    if (const Call* call = std::get_if<Call>(&node.what)) names.push_back(name_of(call->op));
  return names;
}

}  // namespace fsdp
