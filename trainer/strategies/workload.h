#pragma once

#include <nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace fsdp {

// What is trained: any model, and its loss. Every strategy plays it. Both functions give the same
// values on every rank and in every mode.
struct Workload {
  // Makes the model. It draws its values from a seed, so each call makes the same.
  std::function<std::shared_ptr<Module>()> build;
  // Calls `model` on its device, which may be meta (planning/trace_on_meta.h). Returns the loss,
  // [], of one of the `parts` equal parts of the batch of this step.
  std::function<at::Tensor(Module& model, int microbatch, int microbatches, int64_t step)> loss;
};

}  // namespace fsdp
