#pragma once

#include <nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace fsdp {

// A model and its loss, which any strategy can train. `build` and `loss` give the same values on
// every rank and in every mode (single, ddp, fsdp).
struct Workload {
  // Makes the model. Draws the values of its parameters from a fixed seed, so all calls make equal
  // models.
  std::function<std::shared_ptr<Module>()> build;
  // Cuts the batch of step `step` into `microbatches` equal parts, calls `model` on part number
  // `microbatch`, and returns the loss [] of this part. The computation runs on the device of
  // `model`, which can be meta (planning/trace_on_meta.h).
  std::function<at::Tensor(Module& model, int microbatch, int microbatches, int64_t step)> loss;
};

}  // namespace fsdp
