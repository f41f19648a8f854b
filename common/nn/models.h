#pragma once

#include <nn/model_shape.h>
#include <nn/module.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// Properties of a model that the train program needs before the model is built.
struct ModelInfo {
  std::string name;
  int64_t vocabulary;
  int64_t context;  // [tokens] longest sequence
  // batch, seq, steps and lr are the settings of the published run of this model; if there is none,
  // the defaults of the published recipe.
  int64_t batch;
  int64_t seq;  // input tokens in a sequence; its targets are these tokens shifted by one
  int64_t steps;
  double lr;
};

// Returns the info of the model `name`, which is one of:
// - small, medium, gpt2xl: TransformerLM, as published;
// - gpt2-tiny, gpt2-36m, gpt2-124m, gpt2-355m, gpt2-774m, gpt2-1558m: GPT2, with a tied head;
// - gpt2, gpt2-medium, gpt2-large, gpt2-xl: Hugging Face's names for four of these;
// - llama-7b, llama-13b, gpt3-175b, 1t, duke-s, duke-m, duke-l;
// - the name of a GPT-2 and its dropout, as in gpt2-124m:dropout=0.1;
// - a shape, as parse_shape() reads it.
// Throws: std::invalid_argument, which lists the names, or what parse_shape() throws.
ModelInfo model_info(const std::string& name);
std::vector<std::string> model_names();  // names of the registry, without Hugging Face's names

// Returns the architecture of the model `name`. Throws what model_info() throws if there is no such
// model.
ModelShape model_shape(const std::string& name);
// Returns the name for which model_shape() returns `shape`: a name of the registry if there is one,
// with ":dropout=P" if needed; else the text of to_string(shape).
std::string model_name(const ModelShape& shape);
// Returns a map of the tied parameters of model `name`, which have several names: from each
// additional name to the name under which the parameter was registered first, for example from
// "lm_head.weight" to "wte.weight". Returns an empty map if the model has no tied parameters.
std::map<std::string, std::string> tied_names(const std::string& name);

// Builds the model `name` and draws its initial values from the default generator. If `vocabulary`
// is positive, it replaces the model's own vocabulary size. The model maps tokens [B, T] int64 to
// logits [B, T, vocabulary]. Throws what model_info() throws.
std::shared_ptr<Module> make_model(const std::string& name, int64_t vocabulary = 0);

// Returns the mean cross entropy over all positions, computed from fp32 logits: a scalar, [].
at::Tensor language_model_loss(Module& model, const at::Tensor& inputs, const at::Tensor& targets);

}  // namespace fsdp
