#include <nn/reads_in_calls.h>
#include <strategies/root_readers.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fsdp {
namespace {

int number_of_pass() {
  // Outside of a backward pass, get_current_graph_task_id() returns a negative number.
  return torch::autograd::get_current_graph_task_id();
}

std::set<const at::TensorImpl*> parameters_of_root(const Module& root, const ShardLayout& layout) {
  std::set<std::string> names;
  for (const auto& parameter : layout.parameters)
    if (layout.units[parameter.unit].root) names.insert(parameter.name);
  std::set<const at::TensorImpl*> parameters;
  for (const auto& [name, tensor] : distinct_parameters(root))
    if (names.contains(name)) parameters.insert(tensor.unsafeGetTensorImpl());
  return parameters;
}

struct Reader {
  std::string path;
  Module* module;
};

// Returns the root's readers (see root_readers.h) in the order of registration, each reader once.
// Returns none if the calls of modules do not show when the root's parameters are read.
std::vector<Reader> readers_of_root(Module& root, const ShardLayout& layout) {
  if (dynamic_cast<const ReadsInCalls*>(&root) == nullptr) return {};
  const auto of_root = parameters_of_root(root, layout);
  const auto has_one = [&](const torch::nn::Module& module) {
    return std::ranges::any_of(module.parameters(/*recurse=*/false), [&](const auto& parameter) {
      return of_root.contains(parameter.unsafeGetTensorImpl());
    });
  };
  std::vector<Reader> readers;
  if (has_one(root) && root.reads_parameters_in_backward()) readers.push_back({"", &root});
  for (const auto& item : root.named_modules("", /*include_self=*/false)) {
    if (!has_one(*item.value())) continue;
    auto* module = dynamic_cast<Module*>(item.value().get());
    const bool is_child = item.key().find('.') == std::string::npos;
    if (module == nullptr || !is_child) return {};
    const bool is_new = std::ranges::find(readers, module, &Reader::module) == readers.end();
    if (is_new && module->reads_parameters_in_backward()) readers.push_back({item.key(), module});
  }
  return readers;
}

// Counts the calls of the root's readers. In a backward pass, calls `unread` when the backward of
// all these calls has ended. The hooks of the modules own this object, so it lives as long as the
// modules.
class RootReads : public std::enable_shared_from_this<RootReads> {
 public:
  explicit RootReads(std::function<void()> unread) : unread_(std::move(unread)) {}

  void watch_root(Module& root) {
    root.register_forward_pre_hook([self = shared_from_this()](Module& called, const at::Tensor&) {
      if (at::GradMode::is_enabled()) self->recorded_.insert(called.current_call());
      return at::Tensor();
    });
    root.register_forward_hook(
        [self = shared_from_this()](Module& called, const at::Tensor&) {
          self->recorded_.erase(called.current_call());
          return at::Tensor();
        },
        /*always_call=*/true);
  }

  void watch_reader(Module& reader) {
    reader.register_forward_hook([self = shared_from_this()](Module&, const at::Tensor&) {
      self->end_call();
      return at::Tensor();
    });
    reader.register_full_backward_hook([self = shared_from_this()](Module&) { self->come_back(); });
  }

 private:
  // Called after each forward of a reader. Counts the call even if the backward pass will not reach
  // it; in this case the pass never calls `unread`. Notes in `runs_again_` that a reader is called
  // again for the backward pass. Such a call runs inside the backward pass, or it records no
  // gradients although the call of the root around it does, as a call under activation
  // checkpointing.
  void end_call() {
    if (number_of_pass() >= 0) {
      runs_again_ = true;
    } else if (at::GradMode::is_enabled()) {
      ++forward_calls_;
    } else if (!recorded_.empty()) {
      runs_again_ = true;
    }
  }

  // Called by the backward hook of a reader, when the backward of one of the reader's calls has
  // ended.
  void come_back() {
    begin_pass();
    if (++backward_calls_ == forward_calls_ && !runs_again_ && !has_pass_inside_) unread_();
  }

  // Called at the end of each reader's backward. In the first call in a backward pass, resets the
  // counts for this pass. In a later call, notes in has_pass_inside_ if the backward ran in another
  // pass, inside this one. `pass_` shows whether a pass runs: when the pass ends, also by an
  // exception, the engine drops its callbacks, and with them the object to which `pass_` points.
  void begin_pass() {
    if (!pass_.expired()) {
      has_pass_inside_ |= number_of_pass() != number_;
      return;
    }
    const auto held = std::make_shared<bool>();
    pass_ = held;
    number_ = number_of_pass();
    backward_calls_ = 0;
    has_pass_inside_ = false;
    torch::autograd::Engine::get_default_engine().queue_callback(
        [self = shared_from_this(), held] { self->end_pass(); });
  }

  // Called by the engine at the end of a backward pass. Unless the pass keeps its graph, sets the
  // number of forward calls to 0. So calls whose output was dropped are forgotten too, and later
  // passes do not wait for their backward.
  void end_pass() {
    pass_.reset();
    runs_again_ = false;
    if (!torch::autograd::get_current_graph_task_keep_graph()) forward_calls_ = 0;
  }

  std::function<void()> unread_;
  std::set<const void*> recorded_;  // calls of the root that run now and record gradients
  // forward_calls_: the number of calls of readers whose forward has ended. backward_calls_: the
  // number of calls of readers whose backward has ended in the current backward pass.
  int64_t forward_calls_{}, backward_calls_{};
  bool runs_again_{};         // whether the backward pass calls a reader's forward again
  std::weak_ptr<bool> pass_;  // expires when the current backward pass ends
  int number_{};              // graph task id of the current backward pass
  bool has_pass_inside_{};
};

}  // namespace

bool when_root_is_unread(Module& root, const ShardLayout& layout, std::function<void()> unread) {
  const std::vector<Reader> readers = readers_of_root(root, layout);
  if (readers.empty()) return false;
  const auto reads = std::make_shared<RootReads>(std::move(unread));
  reads->watch_root(root);
  for (const Reader& reader : readers)
    reads->watch_reader(*reader.module);
  return true;
}

std::optional<size_t> units_before_root_readers(Module& root, const ShardLayout& layout) {
  const std::vector<Reader> readers = readers_of_root(root, layout);
  if (readers.empty()) return {};
  std::vector<std::string> units;  // names of the units other than the root's
  for (const auto& unit : layout.units)
    if (!unit.root) units.push_back(unit.name);
  size_t before = 0;
  if (readers.front().module == &root) return before;
  for (const auto& item : root.named_modules("", /*include_self=*/false)) {
    if (item.key() == readers.front().path) break;
    if (std::ranges::find(units, item.key()) != units.end()) ++before;
  }
  return before;
}

}  // namespace fsdp
