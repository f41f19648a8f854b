#pragma once

#include <module_of.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>

#include <concepts>
#include <functional>
#include <memory>
#include <utility>

namespace fsdp {

// Registers the parameters, buffers and modules of `theirs` with `self` too, under the same names.
void share_registrations(torch::nn::Module& self, const torch::nn::Module& theirs);
// Returns false for torch::nn::Embedding, else true: see Module::reads_parameters_in_backward().
bool reads_parameters_in_backward(const torch::nn::Module& theirs);

template <class Signature>
class WrappedModule;

// A Module that calls `theirs`, a torch::nn::Module that was built elsewhere. It has the
// parameters, buffers and children of `theirs`, under the same names, and the name of its class. It
// does not get what is registered with `theirs` later.
template <class Output, class... Inputs>
class WrappedModule<Output(Inputs...)> : public ModuleOf<Output(Inputs...)> {
 public:
  // `call` runs forward() of `theirs`.
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

  // train() and the three functions to() are passed on to `theirs`, which may hold state that is
  // not registered.
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

// Shape::Signature is the signature of the ModuleOf that can call a forward() with these inputs and
// this output.
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

// Returns a Module that calls `module`. Its signature is that of module->forward(). Pass another
// one, hookable<at::Tensor(at::Tensor, int64_t)>(module), if forward() is a template or overloaded,
// or to leave out arguments with defaults. Without a signature, returns `module` itself if it is an
// fsdp::Module already.
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
std::shared_ptr<Module> hookable(torch::nn::AnyModule module);  // takes and returns one tensor

}  // namespace fsdp
