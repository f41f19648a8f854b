#pragma once

#include <base/torch.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/SmallVector.h>

#include <functional>
#include <memory>
#include <string>

namespace fsdp {

// A torch::nn::Module that can be called and hooked: what Python's nn.Module is and C++'s is not.
// A module takes one tensor and returns one; ModuleOf is for all others. Call it (module(x)):
// forward() runs no hooks.
class Module : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;
  Module() = default;
  Module(const Module& other) : torch::nn::Module(other) {}  // a copy has no hooks
  Module& operator=(const Module&) = delete;

  // The class, as of torch's name(): "fsdp::Linear". Without the "Impl" of a class with a holder.
  const std::string& name() const;  // NOLINT: hides torch's on purpose

  virtual torch::Tensor forward(torch::Tensor input) = 0;

  // Whether backward reads values of parameters inside this module. That of a row lookup needs the
  // indices alone: FSDP does not gather such a unit for backward.
  virtual bool reads_parameters_in_backward() const { return true; }

  // Runs, in order: the forward pre-hooks, forward(), the forward hooks. While gradients are being
  // recorded it also prepares the two backward hooks. If forward() or a hook throws, the forward
  // hooks that asked for it and have not begun run with an undefined output, and the exception goes
  // on.
  torch::Tensor operator()(torch::Tensor input);

  // Hooks of one kind run in the order of their registration. A hook may return a tensor to put in
  // the place of the one it was given, or an undefined one to leave it. Names are PyTorch's. Of the
  // tensors of a ModuleOf a hook gets the first that requires a gradient, else the first defined
  // one.
  using Hook = std::function<torch::Tensor(Module& module, const torch::Tensor& tensor)>;
  using BackwardHook = std::function<void(Module& module)>;

  // The module keeps its hook until remove(). The handle may outlive the module.
  class HookHandle {
   public:
    void remove();

   private:
    friend class Module;
    std::function<void()> remove_;
  };

  // Tells calls under way apart: the innermost one of this module, whose hooks run; or null.
  const void* current_call() const;

  // What a call runs in place of forward(), which it may run itself. A second one replaces the
  // first. Of a ModuleOf it throws std::logic_error.
  using Forward = std::function<torch::Tensor(Module& module, torch::Tensor input)>;
  virtual void set_forward(Forward forward);

  HookHandle register_forward_pre_hook(Hook hook);
  HookHandle register_forward_hook(Hook hook, bool always_call = false);

  // Runs when the gradient of the output arrives, before any gradient inside the module is
  // computed: once per call of the module whose output is part of the loss. Also when the output is
  // a view that the caller changes in place. Of several outputs the first gradient counts.
  HookHandle register_full_backward_pre_hook(BackwardHook hook);

  // Runs when every gradient inside the module has been computed: once per call of the module whose
  // input requires a gradient. The engine runs nodes in the reverse order of their making, so when
  // the gradient of the input is complete, nothing that was made after it is left to run. A call
  // whose input requires no gradient (token ids, say) gives no sign at all. If an input is used
  // several times inside and also elsewhere, its gradients may be added in another order than
  // without the hook.
  HookHandle register_full_backward_hook(BackwardHook hook);

 protected:
  // Every call, of whatever shape, runs through this. `inputs`: where the tensors lie among the
  // inputs. `forward` runs forward() on them and returns where the tensors lie among the outputs.
  // Hooks, and the preparations for backward, change the tensors at these places.
  using TensorPlaces = c10::SmallVector<torch::Tensor*, 4>;
  void run_between_hooks(const TensorPlaces& inputs, c10::function_ref<TensorPlaces()> forward);

 private:
  struct Hooks;
  std::shared_ptr<Hooks>
      hooks_;  // none until the first registration; the graph refers to it weakly
  const std::shared_ptr<Hooks>& hooks();
  mutable std::string name_;  // empty until it is asked for
};

}  // namespace fsdp
