#pragma once

#include <state/saved_tensors.h>

#include <string>
#include <vector>

namespace fsdp {

// Returns the parameters that belong to no adapter (nn/lora.h).
std::vector<ModelState::Parameter> without_adapters(
    const std::vector<ModelState::Parameter>& parameters);

// The adapters of a checkpoint, for a program that merges them into the weights of their layers.
class SavedAdapters {
 public:
  // `saved` must outlive this object. Throws std::runtime_error, which names the checkpoint, if it
  // has adapters and its settings do not say of which rank and alpha.
  explicit SavedAdapters(const SavedParameters& saved);

  // Adds alpha / rank B A to `whole`, the values of `parameter`, if its layer has an adapter.
  void merge_into(const ModelState::Parameter& parameter, const at::Tensor& whole) const;

 private:
  const ModelState::Parameter* find(const std::string& name) const;  // null: there is none

  const SavedParameters& saved_;
  double scale_{};
};

}  // namespace fsdp
