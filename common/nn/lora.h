#pragma once

#include <nn/module.h>

#include <string>
#include <vector>

namespace fsdp {

struct LoraOptions {
  int64_t rank{8};
  double alpha{16};
};

// The trainable part of a layer with low-rank adaptation (Hu et al., 2021, section 4.1). The layer
// computes x W^T + bias with a frozen W [out, in]; the adapter adds alpha / rank (x A^T) B^T.
// - A [rank, in] begins with the values that torch::nn::Linear draws by default, from the default
//   generator, and B [out, rank] begins with zeros. So at first the adapter adds zero.
// - While an adapter is merged, the layer's weight is W + alpha / rank B A, and the adapter adds
//   nothing.
class LoraAdapter : public Module {
 public:
  LoraAdapter(int64_t in, int64_t out, const LoraOptions& options);
  torch::Tensor forward(torch::Tensor x) override;  // [..., in] -> [..., out], in the dtype of A
  at::Tensor delta() const;                         // alpha / rank B A: [out, in]

 private:
  double scale_;
  torch::Tensor a_, b_;
};

// The base class of layers that can have a LoRA adapter. The layer itself, not one of its children,
// has registered its weight and its bias.
class Adaptable {
 public:
  virtual ~Adaptable() = default;

  // Adds the adapter as the child module "lora", and freezes the layer's weight and bias.
  // Throws std::logic_error if the layer has an adapter already, or std::invalid_argument if the
  // rank or alpha is not positive.
  void add_lora(const LoraOptions& options);

  // merge_lora() adds the product of the adapter's matrices to the weight; unmerge_lora() subtracts
  // it again. The parameters must have their whole values: call these functions of a sharded model
  // in summon_full_params(). After unmerge_lora(), the last bits of the weight can differ from
  // those before merge_lora(). Without an adapter, both do nothing. merge_lora() does nothing if
  // the adapter is merged already, unmerge_lora() if it is not merged.
  void merge_lora();
  void unmerge_lora();

  const torch::Tensor& weight() { return weight_to_adapt(); }  // [out, in]

 protected:
  virtual torch::nn::Module& layer() = 0;
  virtual torch::Tensor& weight_to_adapt() = 0;  // [out, in]
  // Returns `y`, the layer's output for `x`, plus the output of the adapter; only `y` if the layer
  // has no adapter or the adapter is merged.
  torch::Tensor with_lora(const torch::Tensor& x, const torch::Tensor& y) const;

 private:
  std::shared_ptr<LoraAdapter> lora_;  // the layer's adapter; null: the layer has none
  bool merged_{};
};

// The layer x W^T + bias with an adapter, for models that use torch::nn::Linear. Uses the
// parameters of `base` as its own, without a copy.
class LoraLinear : public Module, public Adaptable {
 public:
  explicit LoraLinear(const torch::nn::Linear& base, const LoraOptions& options = {});
  torch::Tensor forward(torch::Tensor x) override;

 private:
  torch::nn::Module& layer() override { return *this; }
  torch::Tensor& weight_to_adapt() override { return weight_; }

  torch::Tensor weight_;  // [out, in]
  torch::Tensor bias_;    // [out], or undefined
};

// Freezes all parameters of `model`, and adds adapters to all Adaptable layers whose names contain
// a match of the regular expression `pattern`. The class Linear of the models of ./fsdp train is
// Adaptable. The parameters of earlier adapters are not frozen. Call add_lora() before the model is
// sharded. Returns the names of the layers, in the order of registration.
// Throws std::invalid_argument if no layer matches, if `pattern` is not a regular expression, or if
// a layer matches whose weight another module has too, as the tied head of a language model has
// that of the embedding: an adapter changes only one of the two, so it cannot be merged.
// Throws what Adaptable::add_lora() throws.
std::vector<std::string> add_lora(torch::nn::Module& model, const std::string& pattern,
                                  const LoraOptions& options);

// merge_lora() and unmerge_lora() call the member function of this name of every Adaptable layer in
// `model`.
void merge_lora(torch::nn::Module& model);
void unmerge_lora(torch::nn::Module& model);

// Returns whether the parameter of this name belongs to an adapter, for example to save only the
// adapters.
bool is_lora(const std::string& parameter);

}  // namespace fsdp
