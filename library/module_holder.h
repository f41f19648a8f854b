#pragma once

#include <nn/module.h>
#include <torch/nn/pimpl.h>

#include <utility>

namespace fsdp {

// A torch::nn::ModuleHolder whose operator() calls operator() of the module, which runs the
// module's hooks.
template <class Contained>
class ModuleHolder : public torch::nn::ModuleHolder<Contained> {
 public:
  using torch::nn::ModuleHolder<Contained>::ModuleHolder;

  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    return (**this)(std::forward<Inputs>(inputs)...);
  }
};

}  // namespace fsdp

// Defines the class Name, a holder of the module NameImpl. (TORCH_MODULE(Name) defines a holder
// whose calls run no hooks.)
#define FSDP_MODULE(Name)                               \
  class Name : public fsdp::ModuleHolder<Name##Impl> {  \
   public:                                              \
    using fsdp::ModuleHolder<Name##Impl>::ModuleHolder; \
    using Impl [[maybe_unused]] = Name##Impl;           \
  }
