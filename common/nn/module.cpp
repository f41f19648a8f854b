#include <nn/module.h>

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

namespace fsdp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A hook may remove itself while it runs, so lists are run from a copy; shared pointers keep that
// cheap and give each registration an identity.
template <class Entry>
using HookList = std::vector<std::shared_ptr<const Entry>>;

struct Callback : torch::CustomClassHolder {
  explicit Callback(std::function<void()> function) : run(std::move(function)) {}
  std::function<void()> run;
};

// Identity whose backward runs a callback. As a custom function it forbids that its output be
// changed in place, which would take the callback out of the graph in silence.
struct CallInBackward : torch::autograd::Function<CallInBackward> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& tensor,
                               std::function<void()> callback) {
    context->set_materialize_grads(false);
    context->saved_data["callback"] =
        c10::IValue::make_capsule(c10::make_intrusive<Callback>(std::move(callback)));
    return tensor.view_as(tensor);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto held = context->saved_data["callback"].toCapsule();
    static_cast<Callback&>(*held).run();
    return {gradients[0], torch::Tensor()};
  }
};

// A view that is changed in place is cut off from its node, and the hooks at that node are lost;
// the base keeps its own. A base older than the call belongs to others: what they do with it is no
// sign.
torch::Tensor hook_anchor(const torch::Tensor& output, uint64_t first_node) {
  if (!output.is_view()) return output;
  const torch::Tensor base(output._base());
  const bool made_in_call = base.grad_fn() && base.grad_fn()->sequence_nr() >= first_node;
  return made_in_call ? base : output;
}

}  // namespace

// Owned by the module alone: a closure that cannot lock its weak pointer has outlived the module.
struct Module::Hooks {
  struct ForwardHook {
    Hook run;
    bool always_call;
  };
  Forward in_place_of_forward;  // none: forward() itself
  HookList<Hook> forward_pre;
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

  // What the graph holds of a list of backward hooks.
  static std::function<void()> runner(const std::shared_ptr<Hooks>& hooks,
                                      HookList<BackwardHook> Hooks::*list, Module& module) {
    return [weak = std::weak_ptr(hooks), list, &module] {
      if (auto alive = weak.lock()) {
        for (const auto& hook : HookList<BackwardHook>((*alive).*list))
          (*hook)(module);
      }
    };
  }

  torch::Tensor run_forward_pre(Module& module, torch::Tensor input) const {
    for (const auto& hook : HookList<Hook>(forward_pre)) {
      if (auto replaced = (*hook)(module, input); replaced.defined()) input = replaced;
    }
    return input;
  }

  torch::Tensor run_forward(Module& module, torch::Tensor output) const {
    for (const auto& hook : HookList<ForwardHook>(forward)) {
      if (auto replaced = hook->run(module, output); replaced.defined()) output = replaced;
    }
    return output;
  }

  // The exception under way is the one to report, not what it leads to.
  void run_forward_after_throw(Module& module) const noexcept {
    for (const auto& hook : HookList<ForwardHook>(forward)) {
      if (!hook->always_call) continue;
      try {
        hook->run(module, torch::Tensor());
      } catch (...) {
      }
    }
  }
};

torch::Tensor Module::operator()(torch::Tensor input) {
  const auto hooks = hooks_;
  if (!hooks) return forward(std::move(input));

  const uint64_t first_node = at::sequence_number::peek();
  torch::Tensor output;
  try {
    input = hooks->run_forward_pre(*this, std::move(input));
    if (!hooks->full_backward.empty() && torch::GradMode::is_enabled() && input.defined() &&
        input.requires_grad()) {
      input = CallInBackward::apply(input, Hooks::runner(hooks, &Hooks::full_backward, *this));
    }
    const auto& replaced = hooks->in_place_of_forward;
    output = replaced ? replaced(*this, std::move(input)) : forward(std::move(input));
  } catch (...) {
    hooks->run_forward_after_throw(*this);
    throw;
  }
  output = hooks->run_forward(*this, std::move(output));

  if (!hooks->full_backward_pre.empty() && torch::GradMode::is_enabled() && output.defined() &&
      output.requires_grad()) {
    if (output.is_leaf()) output = output.view_as(output);  // a leaf would keep the hook for ever
    hook_anchor(output, first_node)
        .register_hook([run = Hooks::runner(hooks, &Hooks::full_backward_pre, *this)](
                           const torch::Tensor&) { run(); });
  }
  return output;
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
  return Hooks::add(hooks(), &Hooks::forward_pre, std::move(hook));
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
