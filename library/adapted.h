#pragma once

#include <module_of.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>

#include <concepts>
#include <functional>
#include <memory>
#include <utility>

namespace fsdp {

// Registers with `self` the parameters, buffers and child modules that are registered with
// `theirs`, under the same names. They are the same objects in both modules, not copies.
void share_registrations(torch::nn::Module& self, const torch::nn::Module& theirs);
// Returns whether the backward pass of `theirs` reads its parameters: false for
// torch::nn::Embedding, true for every other module. See Module::reads_parameters_in_backward().
bool reads_parameters_in_backward(const torch::nn::Module& theirs);

template <class Signature>
class WrappedModule;

// An fsdp::Module whose forward() calls forward() of `theirs`, a torch::nn::Module. It has the
// parameters, buffers and children of `theirs`, under the same names, and its name() is the class
// name of `theirs`. If something is registered with `theirs` later, the WrappedModule does not get
// it.
template <class Output, class... Inputs>
class WrappedModule<Output(Inputs...)> : public ModuleOf<Output(Inputs...)> {
 public:
  // `theirs`: the torch::nn::Module to wrap. `call`: the function that forward() of this
  // WrappedModule calls; it must call forward() of `theirs`.
  WrappedModule(std::shared_ptr<torch::nn::Module> theirs, std::function<Output(Inputs...)> call)
      : ModuleOf<Output(Inputs...)>(theirs->name()),
        theirs_(std::move(theirs)),
        call_(std::move(call)) {
    share_registrations(*this, *theirs_);
  }

  Output forward(Inputs... inputs) override { return call_(std::forward<Inputs>(inputs)...); }
  bool reads_parameters_in_backward() const override {
    return fsdp::reads_parameters_in_backward(*theirs_);
  }

  // train() and the three functions to() of a WrappedModule call those of `theirs`, because
  // `theirs` may hold state that is not registered.
  void train(bool on = true) override {
    Module::train(on);
    theirs_->train(on);
  }
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override {
    theirs_->to(device, dtype, non_blocking);
  }
  void to(torch::Dtype dtype, bool non_blocking = false) override {
    theirs_->to(dtype, non_blocking);
  }
  void to(torch::Device device, bool non_blocking = false) override {
    theirs_->to(device, non_blocking);
  }

 private:
  std::shared_ptr<torch::nn::Module> theirs_;
  std::function<Output(Inputs...)> call_;
};

// Shape<Output, Inputs...>::Signature is the signature of the ModuleOf that can wrap a
// torch::nn::Module whose forward() has these inputs and this output.
template <class Output, class... Inputs>
struct Shape {
  using Signature = Output(Inputs...);
};
template <class Output>
struct Shape<Output, at::Tensor> {
  using Signature = Output(const at::Tensor&);
};
template <>
struct Shape<at::Tensor, at::Tensor> {
  using Signature = at::Tensor(at::Tensor);
};
template <>
struct Shape<at::Tensor, const at::Tensor&> {
  using Signature = at::Tensor(at::Tensor);
};
template <class Output, class Theirs, class... Inputs>
Shape<std::decay_t<Output>, Inputs...> shape_of(Output (Theirs::*)(Inputs...));
template <class Output, class Theirs, class... Inputs>
Shape<std::decay_t<Output>, Inputs...> shape_of(Output (Theirs::*)(Inputs...) const);

// Returns a Module whose forward() calls module->forward() and has its signature. If forward() is a
// template or overloaded, or to leave out arguments with defaults, pass another signature:
// hookable<at::Tensor(at::Tensor, int64_t)>(module). If no signature is passed and `module` is an
// fsdp::Module, returns `module` itself.
template <class Signature, class Theirs>
auto hookable(const std::shared_ptr<Theirs>& module) {
  static_assert(!std::derived_from<Theirs, torch::nn::SequentialImpl>,
                "hookable(module) without a signature makes a Sequential");
  const auto call = [theirs = module.get()](auto&&... inputs) {
    return theirs->forward(std::forward<decltype(inputs)>(inputs)...);
  };
  return std::make_shared<WrappedModule<Signature>>(module, call);
}
template <class Theirs>
auto hookable(const std::shared_ptr<Theirs>& module) {
  if constexpr (std::derived_from<Theirs, Module>) {
    return module;
  } else {
    return hookable<typename decltype(shape_of(&Theirs::forward))::Signature>(module);
  }
}
template <class... Signature, class Theirs>
auto hookable(const torch::nn::ModuleHolder<Theirs>& holder) {
  return hookable<Signature...>(holder.ptr());
}
// `module` holds a torch::nn::Module whose forward() takes one tensor and returns one. If that
// module is an fsdp::Module, returns it; otherwise returns an fsdp::Module that wraps it
// (WrappedModule).
std::shared_ptr<Module> hookable(torch::nn::AnyModule module);

}  // namespace fsdp
