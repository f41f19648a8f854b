#pragma once

#include <base/torch.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/SmallVector.h>

#include <functional>
#include <memory>
#include <string>

namespace fsdp {

// A torch::nn::Module that can be called and that has hooks, like nn.Module in Python and unlike
// LibTorch's torch::nn::Module. A Module takes one tensor and returns one; for all other signatures
// there is ModuleOf. Call the module, module(x): a direct call of forward() runs no hooks.
class Module : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;
  Module() = default;
  Module(const Module& other) : torch::nn::Module(other) {}  // a copy has no hooks
  Module& operator=(const Module&) = delete;

  // Returns the name of the module's class, as torch::nn::Module::name() does, but without the
  // "Impl" of a class with a holder. For example: "fsdp::Linear".
  const std::string& name() const;  // NOLINT: hides torch's on purpose

  virtual torch::Tensor forward(torch::Tensor input) = 0;

  // Returns whether the backward pass reads values of parameters inside this module. If it returns
  // false, FSDP does not unshard this unit for backward: the backward of a row lookup, for example,
  // needs only the indices.
  virtual bool reads_parameters_in_backward() const { return true; }

  // Calls the module.
  // - Runs, in order: the forward pre-hooks, forward(), the forward hooks.
  // - In grad mode, it also prepares the backward hooks of both kinds.
  // - If forward() or a hook throws, calls the forward hooks with always_call that were not called
  //   yet, with an undefined output. Then the exception continues.
  torch::Tensor operator()(torch::Tensor input);

  // The names of the hooks are PyTorch's. Hooks of one kind run in the order of their registration.
  // A Hook may return a tensor that replaces the tensor that it got, or an undefined tensor to keep
  // it. If a ModuleOf has several tensors, a Hook gets the first one that requires a gradient, else
  // the first defined one.
  using Hook = std::function<torch::Tensor(Module& module, const torch::Tensor& tensor)>;
  using BackwardHook = std::function<void(Module& module)>;

  // The handle of a registered hook. The module keeps the hook until remove() is called. The handle
  // may outlive the module.
  class HookHandle {
   public:
    void remove();

   private:
    friend class Module;
    std::function<void()> remove_;
  };

  // Returns an identifier of the innermost call of this module that is running now; null if none is
  // running. Calls that run at the same time have different identifiers.
  const void* current_call() const;

  // Sets the function that a call of the module runs instead of forward(). This function may call
  // forward(). A later call of set_forward() replaces it. set_forward() of a ModuleOf throws
  // std::logic_error.
  using Forward = std::function<torch::Tensor(Module& module, torch::Tensor input)>;
  virtual void set_forward(Forward forward);

  HookHandle register_forward_pre_hook(Hook hook);
  HookHandle register_forward_hook(Hook hook, bool always_call = false);

  // The hook runs when the gradient of the module's output arrives, before any gradient inside the
  // module is computed.
  // - It runs once per backward pass for each call of the module whose output is part of the loss.
  // - It also runs if the output is a view that the caller changes in place.
  // - If there are several outputs, it runs when the first of their gradients arrives.
  HookHandle register_full_backward_pre_hook(BackwardHook hook);

  // The hook runs when every gradient inside the module has been computed.
  // - It runs once per backward pass for each call of the module whose input requires a gradient.
  //   For a call whose input requires no gradient (token ids, for example) it does not run.
  // - Why all gradients are computed then: the engine runs nodes in the reverse order of their
  //   creation. So when the gradient of the input is complete, no node that was created after the
  //   input is left to run.
  // - If an input is used several times inside the module and also outside, its gradients may be
  //   added in another order than without the hook.
  HookHandle register_full_backward_hook(BackwardHook hook);

 protected:
  // Runs one call of a Module or a ModuleOf. `inputs` points to the tensors among the call's
  // inputs. `forward` calls the module's forward() with these inputs and returns pointers to the
  // tensors among its outputs. Hooks, and the preparations for backward, replace the tensors at
  // these places.
  using TensorPlaces = c10::SmallVector<torch::Tensor*, 4>;
  void run_between_hooks(const TensorPlaces& inputs, c10::function_ref<TensorPlaces()> forward);

 private:
  struct Hooks;
  // The hooks of this module and the function that set_forward() has set. Null until the first hook
  // is registered or set_forward() is called. The autograd graph has weak pointers to this object.
  std::shared_ptr<Hooks> hooks_;
  const std::shared_ptr<Hooks>& hooks();
  mutable std::string name_;  // what name() returns; empty until the first call of name()
};

}  // namespace fsdp
