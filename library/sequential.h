#pragma once

#include <adapted.h>
#include <torch/nn/modules/container/sequential.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fsdp {

class Sequential;
// Returns an fsdp::Sequential with the modules of `theirs`, a torch::nn::Sequential, under the same
// names.
std::shared_ptr<Sequential> hookable(const std::shared_ptr<torch::nn::SequentialImpl>& theirs);
std::shared_ptr<Sequential> hookable(const torch::nn::Sequential& theirs);

// A torch::nn::Sequential whose modules are called with their hooks. Each module takes one tensor
// and returns one, and can be anything that hookable() takes: Sequential(Linear(4, 4), ReLU(),
// block). The names of the modules are "0", "1", ..., or those given to push_back(). A Sequential
// without modules returns its input.
class Sequential : public Module {
 public:
  Sequential() = default;
  template <class First, class... Others>
  requires(!std::derived_from<First, torch::nn::Module>)  // so Sequential(other) is a copy of other
      explicit Sequential(const First& first, const Others&... others) {
    push_back(first);
    (push_back(others), ...);
  }

  template <class Any>
  void push_back(const Any& module) {
    push_back(std::to_string(modules_.size()), module);
  }
  template <class Any>
  void push_back(const std::string& name, const Any& module) {
    add(name, hookable(module));
  }

  torch::Tensor forward(torch::Tensor input) override;

 private:
  template <class One>
  void add(const std::string& name, std::shared_ptr<One> module) {
    static_assert(std::derived_from<One, Module> && !std::derived_from<One, NonTensorModule>,
                  "a module in a Sequential must take one tensor and return one");
    register_module(name, module);
    modules_.push_back(std::move(module));
  }

  std::vector<std::shared_ptr<Module>> modules_;
};

}  // namespace fsdp
