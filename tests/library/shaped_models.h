#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <module_holder.h>
#include <module_of.h>
#include <sequential.h>
#include <torch/nn/modules/activation.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

// Models whose modules do not take one tensor and return one. Sizes that no number of ranks
// divides.
namespace fsdp {

constexpr int64_t kWidth = 9;

inline at::Tensor drawn(at::IntArrayRef sizes) {
  return at::randn(sizes) * 0.3;
}

// What a row attends to, and how sure it is: several inputs, one of them no tensor, and an output
// besides the main one.
struct CrossBlock
    : ModuleOf<std::pair<at::Tensor, at::Tensor>(at::Tensor x, const at::Tensor& context,
                                                 const at::Tensor& mask, int heads)> {
  CrossBlock()
      : query(register_parameter("query", drawn({kWidth, kWidth}))),
        both(register_parameter("both", drawn({2 * kWidth, kWidth}))) {}
  // x, context [rows, kWidth], mask [rows, rows] bool -> [rows, kWidth] and [].
  std::pair<at::Tensor, at::Tensor> forward(at::Tensor x, const at::Tensor& context,
                                            const at::Tensor& mask, int heads) override {
    const auto keys_values = at::linear(context, both).chunk(2, 1);
    const auto scores = at::linear(x, query).mm(keys_values[0].t()) / heads;
    const auto weights = scores.masked_fill(mask, -1e9).softmax(1);
    return {x + weights.mm(keys_values[1]), weights.square().mean()};
  }
  at::Tensor query, both;  // [kWidth, kWidth], [2 kWidth, kWidth]
};

struct CrossNet : ModuleOf<std::pair<at::Tensor, at::Tensor>(const at::Tensor& x, bool twice)> {
  CrossNet() {
    encoder = register_parameter("encoder", drawn({kWidth, kWidth}));
    for (int i = 0; i < 3; ++i)
      blocks.push_back(register_module(std::to_string(i), std::make_shared<CrossBlock>()));
  }
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x, bool twice) override {
    const auto context = at::linear(x, encoder).tanh();
    const auto mask = at::ones({x.size(0), x.size(0)}, at::kBool).triu(1);
    at::Tensor y = x, aside = at::zeros({}), more;
    for (const auto& block : blocks) {
      for (int call = 0; call < (twice ? 2 : 1); ++call) {
        std::tie(y, more) = (*block)(y, context, mask, 3);
        aside = aside + more;
      }
    }
    return {y, aside};
  }
  at::Tensor encoder;  // [kWidth, kWidth]
  std::vector<std::shared_ptr<CrossBlock>> blocks;
};

// Outputs by name, of which a loss may leave out some.
struct NamedBlock
    : ModuleOf<std::map<std::string, at::Tensor>(std::map<std::string, at::Tensor> from)> {
  NamedBlock()
      : weight(register_parameter("weight", drawn({kWidth, kWidth}))),
        head(register_parameter("head", drawn({2, kWidth}))) {}
  std::map<std::string, at::Tensor> forward(std::map<std::string, at::Tensor> from) override {
    const at::Tensor x = from.at("hidden");
    const auto hidden = x + at::linear(x, weight).tanh();
    return {{"hidden", hidden},
            {"logits", at::linear(hidden, head)},
            {"count", at::tensor({x.size(0)})},
            {"none", at::Tensor()}};
  }
  at::Tensor weight, head;  // [kWidth, kWidth], [2, kWidth]
};

struct NamedNet : Module {
  explicit NamedNet(bool frozen) {
    for (int i = 0; i < 4; ++i)
      blocks.push_back(register_module(std::to_string(i), std::make_shared<NamedBlock>()));
    for (const int i : {0, 2})
      for (auto& parameter : blocks[static_cast<size_t>(i)]->parameters())
        parameter.set_requires_grad(!frozen);
  }
  at::Tensor forward(at::Tensor x) override {
    std::map<std::string, at::Tensor> all{{"hidden", x}, {"more", at::Tensor()}};
    for (const auto& block : blocks)
      all = (*block)(std::move(all));
    return logits ? all.at("logits") : all.at("hidden");
  }
  std::vector<std::shared_ptr<NamedBlock>> blocks;
  bool logits{};
};

// The state of a recurrent block.
struct State {
  at::Tensor hidden;
  std::optional<at::Tensor> cell;
  int64_t steps{};
  auto tensors() { return std::tie(hidden, cell); }
};

struct RecurrentBlock : ModuleOf<std::tuple<std::vector<at::Tensor>, State>(
                            const std::vector<at::Tensor>& rows, State state)> {
  RecurrentBlock() : weight(register_parameter("weight", drawn({kWidth, kWidth}))) {}
  std::tuple<std::vector<at::Tensor>, State> forward(const std::vector<at::Tensor>& rows,
                                                     State state) override {
    std::vector<at::Tensor> out;
    for (const at::Tensor& row : rows) {
      state.hidden = at::linear(row + state.hidden, weight).tanh();
      state.cell = state.cell ? *state.cell * 0.5 + state.hidden : state.hidden * 1;
      ++state.steps;
      out.push_back(*state.cell);
    }
    return {out, state};
  }
  at::Tensor weight;  // [kWidth, kWidth]
};

struct StatefulNet : Module {
  StatefulNet() {
    start = register_parameter("start", drawn({1, kWidth}));
    for (int i = 0; i < 2; ++i)
      blocks.push_back(register_module(std::to_string(i), std::make_shared<RecurrentBlock>()));
  }
  at::Tensor forward(at::Tensor x) override {
    std::vector<at::Tensor> rows = x.split(1);
    at::Tensor ends = at::zeros({});
    for (const auto& block : blocks) {
      State end;
      std::tie(rows, end) = (*block)(rows, {start, std::nullopt});
      ends = ends + end.hidden.sum() / end.steps;
    }
    return at::cat(rows).square().mean() + ends;
  }
  at::Tensor start;  // [1, kWidth]
  std::vector<std::shared_ptr<RecurrentBlock>> blocks;
};

// A block that is held.
struct HeldBlockImpl : Module {
  HeldBlockImpl() : weight(register_parameter("weight", drawn({kWidth, kWidth}))) {}
  at::Tensor forward(at::Tensor x) override { return x + at::linear(x, weight).tanh(); }
  at::Tensor weight;  // [kWidth, kWidth]
};
FSDP_MODULE(HeldBlock);

// A block of torch's modules, as somebody else may have built it.
struct TheirBlockImpl : torch::nn::Module {
  TheirBlockImpl() { linear = register_module("linear", torch::nn::Linear(kWidth, kWidth)); }
  at::Tensor forward(const at::Tensor& x) { return x + linear(x).relu(); }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(TheirBlock);

}  // namespace fsdp
