#pragma once

#include <testing/multi_rank.h>

#include <memory>

namespace fsdp {

using Construct = std::function<std::shared_ptr<torch::nn::Module>()>;

// The name of a module, and a function that constructs and returns the module. A test calls this
// function outside of a DeferredInit (eagerly) or inside of one.
struct Construction {
  std::string name;
  Construct construct;
};

// Returns constructions of modules of torch::nn, whose constructors initialize the parameters.
std::vector<Construction> modules_of_torch();
// Returns constructions of modules whose tensors nn::init or random operations fill.
std::vector<Construction> init_functions();
// Returns a construction of a module that calls its batch norm and dropout in its constructor.
Construction called_submodules();

// Returns a construction of an nn::TransformerEncoderLayer of this width. run_layer() runs its
// forward. Only constructions.cpp includes all of torch::nn, because the tests are compiled again
// after every edit of meta_init.h.
Construct transformer_layer(int64_t width);
at::Tensor run_layer(torch::nn::Module& transformer_layer, const at::Tensor& input);

// Returns the parameters of `module`, then its buffers.
std::vector<at::Tensor> tensors_of(const torch::nn::Module& module);

// The following functions return what a rank observes of tensors: device_name() and device_names()
// the device ("meta" or "cpu"), numbers_of() the numbers. If a tensor is undefined or has no
// numbers, they return a text that says so.
std::string device_name(const at::Tensor& tensor);
std::vector<std::string> device_names(const std::vector<at::Tensor>& tensors);
nlohmann::json numbers_of(const at::Tensor& tensor);

// A module whose constructor calls `fill`, which registers parameters, buffers and modules. So a
// test can write a construction as a function.
struct Holder : torch::nn::Module {
  using Fill = std::function<void(Holder&)>;
  explicit Holder(const Fill& fill) { fill(*this); }

  at::Tensor parameter(const std::string& name, at::Tensor value) {
    return register_parameter(name, std::move(value));
  }
  at::Tensor buffer(const std::string& name, at::Tensor value) {
    return register_buffer(name, std::move(value));
  }
};
Construction holder(std::string name, Holder::Fill fill);

// A model that initializes all its parameters again at the end of its constructor.
struct Reinitialized : torch::nn::Module {
  static constexpr int64_t kLayers = 8;
  static constexpr int64_t kWidth = 128;

  Reinitialized();
};

// Makes each module twice after manual_seed(): once eagerly, and once on a rank by `deferred`,
// which must return the module materialized. Expects the same parameters and buffers bitwise, with
// the same sizes, strides, requires_grad and sharing, and the same next random number.
using Deferred = std::function<std::shared_ptr<torch::nn::Module>(const Construct&)>;
void expect_as_eager(const std::vector<Construction>& constructions, const Deferred& deferred);

}  // namespace fsdp
