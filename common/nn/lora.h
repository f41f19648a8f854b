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
// - A [rank, in] begins with PyTorch's default values of a Linear, from the default generator, and
//   B [out, rank] with zeros. So at first the layer computes what it computed before.
// - Merged, the sum W + alpha / rank B A has taken the place of W, and the adapter adds nothing.
class LoraAdapter : public Module {
 public:
  LoraAdapter(int64_t in, int64_t out, const LoraOptions& options);
  torch::Tensor forward(torch::Tensor x) override;  // [..., in] -> [..., out], in the dtype of A
  at::Tensor delta() const;                         // alpha / rank B A: [out, in]

 private:
  double scale_;
  torch::Tensor a_, b_;
};

// A layer that can have an adapter. Its weight and bias are parameters of its own.
class Adaptable {
 public:
  virtual ~Adaptable() = default;

  // Adds the adapter as the child "lora", and freezes the weight and the bias.
  // Throws std::logic_error if the layer has an adapter already, or std::invalid_argument if the
  // rank or alpha is not positive.
  void add_lora(const LoraOptions& options);

  // Adds the product of the adapter's matrices to the weight, or subtracts it again. The parameters
  // must have their whole values: of a sharded model, in summon_full_params(). Subtracting can
  // leave other last bits than the weight had before. Does nothing without an adapter, or if the
  // weight is merged, or not merged, already.
  void merge_lora();
  void unmerge_lora();

 protected:
  virtual torch::nn::Module& layer() = 0;
  virtual torch::Tensor& weight_to_adapt() = 0;  // [out, in]
  // Returns `y`, which the layer computed from `x`, and what the adapter adds.
  torch::Tensor with_lora(const torch::Tensor& x, const torch::Tensor& y) const;

 private:
  std::shared_ptr<LoraAdapter> lora_;  // null: none
  bool merged_{};
};

// x W^T + bias with an adapter, for models of one's own: takes the parameters of `base`.
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

// Freezes all parameters of `model`, and adds adapters to all layers whose names match the regular
// expression `pattern`: Linear (of the models of ./fsdp train) and other Adaptable layers. The
// parameters of adapters that a layer has already stay trainable. Call it before the model is
// sharded. Returns the names of the layers, in the order of registration.
// Throws std::invalid_argument if no layer matches, or if `pattern` is not a regular expression.
std::vector<std::string> add_lora(torch::nn::Module& model, const std::string& pattern,
                                  const LoraOptions& options);

// Merge or unmerge all adapters of the model: see Adaptable.
void merge_lora(torch::nn::Module& model);
void unmerge_lora(torch::nn::Module& model);

// Returns whether a parameter of this name belongs to an adapter. So an adapter can be saved alone.
bool is_lora(const std::string& parameter);

}  // namespace fsdp
