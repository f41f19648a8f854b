#pragma once

#include <nn/model_shape.h>
#include <nn/module.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// What the train program needs to know of a model before it is built.
struct ModelInfo {
  std::string name;
  int64_t vocabulary;
  int64_t context;  // longest sequence
  // The published run's settings; for other models the published recipe's defaults.
  int64_t batch;
  int64_t seq;  // tokens a row, after the shift by one
  int64_t steps;
  double lr;
};

// Of small, medium, gpt2xl (TransformerLM, as published); gpt2-tiny, gpt2-36m, gpt2-124m,
// gpt2-355m, gpt2-774m, gpt2-1558m (GPT2, tied head); llama-13b, gpt3-175b, 1t, duke-s, duke-m,
// duke-l; or of a shape that is its own name, see
// parse_shape(). Throws std::invalid_argument that lists the names, or what parse_shape() throws.
ModelInfo model_info(const std::string& name);
std::vector<std::string> model_names();  // of those that have a name

ModelShape model_shape(const std::string& name);  // throws as model_info does
std::string model_name(const ModelShape& shape);  // the inverse
// The further names of parameters that have several: name -> first name.
std::map<std::string, std::string> tied_names(const std::string& name);

// Builds the model, drawing from the default generator. Throws as model_info does.
// `vocabulary` replaces the model's own if positive. Tokens [B, T] int64 -> logits [B, T,
// vocabulary].
std::shared_ptr<Module> make_model(const std::string& name, int64_t vocabulary = 0);

// Mean cross entropy over all positions, on fp32 logits. [] scalar
at::Tensor language_model_loss(Module& model, const at::Tensor& inputs, const at::Tensor& targets);

}  // namespace fsdp
