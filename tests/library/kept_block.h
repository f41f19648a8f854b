#pragma once

#include <module_holder.h>
#include <sequential.h>

// KeptBlock is a module holder: it keeps a KeptBlockImpl, which is a block with one weight. row()
// returns an input for a KeptBlock of width 3.
namespace fsdp {

struct KeptBlockImpl : Module {
  explicit KeptBlockImpl(int64_t width)
      : weight(register_parameter("weight", at::full({width, width}, 0.5))) {}
  at::Tensor forward(at::Tensor x) override { return at::linear(x, weight); }
  at::Tensor weight;  // [width, width]
};
FSDP_MODULE(KeptBlock);

inline at::Tensor row() {
  return at::ones({1, 3}).set_requires_grad(true);
}

}  // namespace fsdp
