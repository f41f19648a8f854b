#pragma once

#include <nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace fsdp {

// A model and its loss, which any strategy can train. Both functions give the same values on every
// rank and in every mode (single, ddp, fsdp).
struct Workload {
  // Makes the model. Draws its values from a seed, so each call makes an equal model.
  std::function<std::shared_ptr<Module>()> build;
  // Calls `model` on its device, which can be meta (planning/trace_on_meta.h). Returns the loss []
  // of one microbatch: of part `microbatch` of the batch of this step, which is cut into
  // `microbatches` equal parts.
  std::function<at::Tensor(Module& model, int microbatch, int microbatches, int64_t step)> loss;
};

}  // namespace fsdp
