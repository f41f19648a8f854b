#include <nn/module.h>

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace fsdp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Places = c10::ArrayRef<torch::Tensor*>;

// A hook may remove itself while it runs, so each call runs a copy of the list. Shared pointers
// make the copy cheap and identify each registration.
template <class Entry>
using HookList = std::vector<std::shared_ptr<const Entry>>;

struct Callback : torch::CustomClassHolder {
  explicit Callback(std::function<void()> function) : run(std::move(function)) {}
  std::function<void()> run;
};

// A custom autograd function that returns its input tensors unchanged. Its backward runs a callback
// once, when the gradients of all these tensors are complete. Because it is a custom function,
// autograd throws if one of its outputs is changed in place. Otherwise such a change would silently
// remove the callback from the graph.
struct CallInBackward : torch::autograd::Function<CallInBackward> {
  static variable_list forward(AutogradContext* context, at::TensorList tensors,
                               std::function<void()> callback) {
    context->set_materialize_grads(false);
    context->saved_data["callback"] =
        c10::IValue::make_capsule(c10::make_intrusive<Callback>(std::move(callback)));
    variable_list same;
    same.reserve(tensors.size());
    for (const auto& tensor : tensors)
      same.push_back(tensor.view_as(tensor));
    return same;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto held = context->saved_data["callback"].toCapsule();
    static_cast<Callback&>(*held).run();
    // forward() also has the argument `callback`, which is no tensor: its gradient is undefined.
    gradients.emplace_back();
    return gradients;
  }
};

bool requires_grad(const torch::Tensor* tensor) {
  return tensor->defined() && tensor->requires_grad();
}

void replace(Places places, const torch::Tensor& tensor, const torch::Tensor& by) {
  // The pointer is read before the loop, because `tensor` may be one of the tensors that the loop
  // replaces.
  const auto* old = tensor.unsafeGetTensorImpl();
  for (torch::Tensor* place : places)
    if (place->unsafeGetTensorImpl() == old) *place = by;
}

// Returns the tensor that a call passes to its hooks: the first that requires a gradient, else the
// first that is defined, else the first; null if the call has no tensors.
const torch::Tensor* shown(Places places) {
  auto found = std::ranges::find_if(places, requires_grad);
  if (found == places.end())
    found = std::ranges::find_if(places, [](const auto* place) { return place->defined(); });
  if (found == places.end()) found = places.begin();
  return found == places.end() ? nullptr : *found;
}

// Passes the gradients of `inputs` through one autograd node, which runs the callback when all of
// them are complete. A tensor that is at several places passes through the node once, so autograd
// adds its gradients in the order in which they arrive, as it does without the node.
void call_after_gradients(Places inputs, std::function<void()> callback) {
  variable_list tensors;
  for (const torch::Tensor* input : inputs) {
    const auto is_same = [&](const torch::Tensor& other) { return other.is_same(*input); };
    if (requires_grad(input) && std::ranges::none_of(tensors, is_same)) tensors.push_back(*input);
  }
  if (tensors.empty()) return;
  const auto same = CallInBackward::apply(at::TensorList(tensors), std::move(callback));
  for (size_t i = 0; i < tensors.size(); ++i)
    replace(inputs, tensors[i], same[i]);
}

// Returns the tensor on which the hook for `output` must be registered: the base of `output` if
// `output` is a view and its base was made in this call, else `output`. If the caller changes a
// view in place, the view gets a new autograd node and loses its hooks; hooks of its base stay. A
// base that was made before the call is not used, because it may get gradients that do not come
// from `output`.
torch::Tensor hook_anchor(const torch::Tensor& output, uint64_t first_node) {
  if (!output.is_view()) return output;
  const torch::Tensor base(output._base());
  const bool made_in_call = base.grad_fn() && base.grad_fn()->sequence_nr() >= first_node;
  return made_in_call ? base : output;
}

// Registers hooks that run the callback once in each backward pass, when the first gradient of one
// of `outputs` arrives.
void call_before_gradients(Places outputs, uint64_t first_node, std::function<void()> callback) {
  struct OncePerPass {
    std::function<void()> run;
    int last{-1};  // autograd's id of the last backward pass that ran `run`
  };
  const auto once = std::make_shared<OncePerPass>(OncePerPass{std::move(callback)});
  for (torch::Tensor* output : outputs) {
    if (!requires_grad(output)) continue;
    // A leaf would keep the hook after the backward pass, so a view of the leaf gets the hook.
    if (output->is_leaf()) *output = output->view_as(*output);
    hook_anchor(*output, first_node).register_hook([once](const torch::Tensor&) {
      const int pass = torch::autograd::get_current_graph_task_id();
      if (std::exchange(once->last, pass) != pass) once->run();
    });
  }
}

std::string without_impl(std::string name) {
  if (name.ends_with("Impl") && !name.ends_with(":Impl") && name != "Impl")
    name.resize(name.size() - 4);
  return name;
}

}  // namespace

// Apart from running calls, the module is the only owner of its Hooks. Closures hold weak pointers
// to it: if a closure cannot lock its pointer, the module has been destroyed.
struct Module::Hooks {
  struct ForwardHook {
    Hook run;
    bool always_call;
  };
  // Represents one running call of the module; a local variable of that call.
  struct Call {
    explicit Call(Hooks& hooks) : hooks(hooks), around(std::exchange(hooks.call, this)) {}
    ~Call() { hooks.call = around; }
    Call(const Call&) = delete;
    Hooks& hooks;
    const Call* around;
  };
  const Call* call{};
  // The function that set_forward() has set; empty: a call of the module runs forward().
  Forward in_place_of_forward;
  HookList<ForwardHook> forward_pre;
  HookList<ForwardHook> forward;
  HookList<BackwardHook> full_backward_pre;
  HookList<BackwardHook> full_backward;

  template <class Entry>
  static HookHandle add(const std::shared_ptr<Hooks>& hooks, HookList<Entry> Hooks::*list,
                        Entry value) {
    auto entry = std::make_shared<const Entry>(std::move(value));
    ((*hooks).*list).push_back(entry);
    HookHandle handle;
    handle.remove_ = [weak_hooks = std::weak_ptr(hooks), weak_entry = std::weak_ptr(entry), list] {
      if (auto alive = weak_hooks.lock()) std::erase((*alive).*list, weak_entry.lock());
    };
    return handle;
  }

  // Returns the function that the autograd graph stores for a list of backward hooks. When it is
  // called, it runs the hooks that are in the list at that time.
  static std::function<void()> runner(const std::shared_ptr<Hooks>& hooks,
                                      HookList<BackwardHook> Hooks::*list, Module& module) {
    return [weak = std::weak_ptr(hooks), list, &module] {
      if (auto alive = weak.lock()) {
        for (const auto& hook : HookList<BackwardHook>((*alive).*list))
          (*hook)(module);
      }
    };
  }

  // Runs the hooks in the order of their registration. Adds each hook to `begun` before it runs.
  static void run(const HookList<ForwardHook>& hooks, Module& module, Places places,
                  HookList<ForwardHook>& begun) {
    torch::Tensor none;
    const torch::Tensor* found = shown(places);
    const torch::Tensor& tensor = found ? *found : none;
    for (const auto& hook : HookList<ForwardHook>(hooks)) {
      begun.push_back(hook);
      if (const auto by = hook->run(module, tensor); by.defined()) replace(places, tensor, by);
    }
  }

  // Called when a call of the module has thrown an exception. Runs the forward hooks with
  // always_call that are not in `begun`. Ignores the exceptions of these hooks, because the caller
  // reports the exception of the call.
  void run_forward_after_throw(Module& module, const HookList<ForwardHook>& begun) const noexcept {
    for (const auto& hook : HookList<ForwardHook>(forward)) {
      if (!hook->always_call || std::ranges::find(begun, hook) != begun.end()) continue;
      try {
        hook->run(module, torch::Tensor());
      } catch (...) {
      }
    }
  }
};

const std::string& Module::name() const {
  if (name_.empty()) name_ = without_impl(torch::nn::Module::name());
  return name_;
}

torch::Tensor Module::operator()(torch::Tensor input) {
  torch::Tensor output;
  run_between_hooks({&input}, [&]() -> TensorPlaces {
    const bool replaced = hooks_ && hooks_->in_place_of_forward;
    output =
        replaced ? hooks_->in_place_of_forward(*this, std::move(input)) : forward(std::move(input));
    return {&output};
  });
  return output;
}

void Module::run_between_hooks(const TensorPlaces& inputs,
                               c10::function_ref<TensorPlaces()> forward) {
  const auto hooks = hooks_;
  if (!hooks) {
    forward();
    return;
  }
  const Hooks::Call call(*hooks);
  const uint64_t first_node = at::sequence_number::peek();
  TensorPlaces outputs;
  HookList<Hooks::ForwardHook> begun;
  try {
    Hooks::run(hooks->forward_pre, *this, inputs, begun);
    if (!hooks->full_backward.empty() && torch::GradMode::is_enabled())
      call_after_gradients(inputs, Hooks::runner(hooks, &Hooks::full_backward, *this));
    outputs = forward();
    Hooks::run(hooks->forward, *this, outputs, begun);
  } catch (...) {
    hooks->run_forward_after_throw(*this, begun);
    throw;
  }
  if (!hooks->full_backward_pre.empty() && torch::GradMode::is_enabled())
    call_before_gradients(outputs, first_node,
                          Hooks::runner(hooks, &Hooks::full_backward_pre, *this));
}

const void* Module::current_call() const {
  return hooks_ ? hooks_->call : nullptr;
}

void Module::HookHandle::remove() {
  if (remove_) remove_();
}

const std::shared_ptr<Module::Hooks>& Module::hooks() {
  if (!hooks_) hooks_ = std::make_shared<Hooks>();
  return hooks_;
}

void Module::set_forward(Forward forward) {
  hooks()->in_place_of_forward = std::move(forward);
}

Module::HookHandle Module::register_forward_pre_hook(Hook hook) {
  return Hooks::add(hooks(), &Hooks::forward_pre, Hooks::ForwardHook{std::move(hook), false});
}

Module::HookHandle Module::register_forward_hook(Hook hook, bool always_call) {
  return Hooks::add(hooks(), &Hooks::forward, Hooks::ForwardHook{std::move(hook), always_call});
}

Module::HookHandle Module::register_full_backward_pre_hook(BackwardHook hook) {
  return Hooks::add(hooks(), &Hooks::full_backward_pre, std::move(hook));
}

Module::HookHandle Module::register_full_backward_hook(BackwardHook hook) {
  return Hooks::add(hooks(), &Hooks::full_backward, std::move(hook));
}

}  // namespace fsdp
