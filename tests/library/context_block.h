#pragma once

#include <module_of.h>

#include <library/one_process.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace fsdp {

constexpr int64_t kContextWidth = 7;

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

struct ContextOutput {
  at::Tensor y;                     // [rows, kContextWidth]
  std::optional<at::Tensor> aside;  // a scalar: a second loss
  at::Tensor largest;               // [rows] int64, has no gradient
  auto tensors() { return std::tie(y, aside, largest); }
};

// A block that attends to several contexts, with dropout. It keeps a weak pointer to an
// intermediate tensor, so that a test sees when this tensor is freed.
struct ContextBlock : ModuleOf<ContextOutput(at::Tensor x, const std::vector<at::Tensor>& contexts,
                                             std::string activation)> {
  ContextBlock()
      : linear(register_module("linear", torch::nn::Linear(kContextWidth, kContextWidth))) {}
  ContextOutput forward(at::Tensor x, const std::vector<at::Tensor>& contexts,
                        std::string activation) override {
    ++runs;
    if (throws) throw std::domain_error("no such row");
    at::Tensor inside = linear(x);
    for (const at::Tensor& context : contexts)
      inside = inside + context * linear(context).sigmoid();
    inside = activation == "tanh" ? inside.tanh() : inside.relu();
    on_the_way.emplace(inside.getIntrusivePtr());
    return {x + at::dropout(inside, 0.25, is_training()), inside.square().mean(),
            inside.detach().argmax(1)};
  }
  torch::nn::Linear linear{nullptr};
  int runs{};
  bool throws{};
  std::optional<WeakTensor> on_the_way;
};

// A module that calls the ContextBlock inside it. A test can checkpoint the outer module, the inner
// one, or both.
struct CallsContextBlock : ModuleOf<ContextOutput(const at::Tensor& x)> {
  ContextOutput forward(const at::Tensor& x) override { return (*inside)(x, {}, "tanh"); }
  std::shared_ptr<ContextBlock> inside = register_module("0", std::make_shared<ContextBlock>());
};

inline at::Tensor context_rows() {
  return batch_part(0, 1, 0, {5, kContextWidth});
}

}  // namespace fsdp
