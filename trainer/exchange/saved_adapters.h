#pragma once

#include <state/saved_tensors.h>

#include <string>
#include <vector>

namespace fsdp {

// Returns those of `parameters` that belong to no LoRA adapter (nn/lora.h).
std::vector<ModelState::Parameter> without_adapters(
    const std::vector<ModelState::Parameter>& parameters);

// The LoRA adapters of a checkpoint, for a program that merges them into the weights of their
// layers.
class SavedAdapters {
 public:
  // `saved` must outlive this object. Throws std::runtime_error, which names the checkpoint, if the
  // checkpoint has adapters but its settings lack the rank or the alpha of the adapters.
  explicit SavedAdapters(const SavedParameters& saved);

  // If `parameter` is the weight of a layer with an adapter, adds the adapter's alpha / rank * B A
  // to `whole`, the values of the weight.
  void merge_into(const ModelState::Parameter& parameter, const at::Tensor& whole) const;

 private:
  // Returns the parameter `name` of the checkpoint; null if there is none.
  const ModelState::Parameter* find(const std::string& name) const;

  const SavedParameters& saved_;
  double scale_{};
};

}  // namespace fsdp
