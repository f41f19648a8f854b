#pragma once

#include <layout/shard_layout.h>
#include <nn/module.h>
#include <testing/judge/cases.h>

#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// tanh(x weight' + bias), of sizes that no number of ranks divides. Also `spare`, which the output
// does not depend on while use_spare is off.
class ToyBlock : public Module {
 public:
  ToyBlock(int64_t width, int64_t seed) {
    auto generator =
        at::make_generator<at::CPUGeneratorImpl>(test_seed(static_cast<uint64_t>(seed)));
    weight = register_parameter("weight", at::randn({width, width}, generator));
    bias = register_parameter("bias", at::randn({width}, generator));
    spare = register_parameter("spare", at::randn({3}, generator));
  }

  torch::Tensor forward(torch::Tensor x) override {
    ++calls;
    if (fails) throw std::runtime_error("the block failed");
    auto y = at::linear(x, weight, bias).tanh();
    return use_spare ? y * spare.sum() : y;
  }

  // Makes this block's weight another name of `other`.
  void tie_weight(const at::Tensor& other) {
    parameters_["weight"] = other;
    weight = other;
  }

  at::Tensor weight;  // [width, width]
  at::Tensor bias;    // [width]
  at::Tensor spare;   // [3]
  bool use_spare{true};
  bool fails{};
  int calls{};
};

// An embedding of token ids, `layers` blocks, and a head: units root, blocks.0, blocks.1, ...
class ToyModel : public Module {
 public:
  explicit ToyModel(int layers, int64_t width = 7, int64_t vocabulary = 11) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(test_seed(1));
    embedding = register_parameter("embedding", at::randn({vocabulary, width}, generator));
    for (int i = 0; i < layers; ++i) {
      blocks.push_back(std::make_shared<ToyBlock>(width, 100 + i));
      register_module("blocks" + std::to_string(i), blocks.back());
      order.push_back(i);
    }
    head = register_parameter("head", at::randn({width}, generator));
  }

  // tokens [n] int64 -> [n]
  torch::Tensor forward(torch::Tensor tokens) override {
    auto x = at::embedding(embedding, tokens);
    for (const int block : order)
      x = (*blocks[static_cast<size_t>(block)])(x);
    return at::mv(x, head);
  }

  at::Tensor embedding;  // [vocabulary, width]
  at::Tensor head;       // [width]
  std::vector<std::shared_ptr<ToyBlock>> blocks;
  std::vector<int> order;  // in which blocks are called
};

// What becomes a unit: the root and each block, with the parameters that are its own.
struct ToyUnit {
  Module* module;
  std::string name;  // root, blocks0, blocks1, ...
  std::vector<NamedParameter> parameters;
};

inline std::vector<ToyUnit> toy_units(ToyModel& model) {
  std::vector<ToyUnit> units{
      {&model, "root", {{"embedding", model.embedding}, {"head", model.head}}}};
  for (const auto& block : model.blocks) {
    units.push_back({block.get(),
                     "blocks" + std::to_string(units.size() - 1),
                     {{"weight", block->weight}, {"bias", block->bias}, {"spare", block->spare}}});
  }
  return units;
}

// [bytes] what one of W ranks owns of a ToyModel of the default sizes: each unit's parameters,
// rounded up to 16 elements, are 96 elements, and these are rounded up to 16 W.
inline int64_t toy_shard_bytes(int layers, int world_size) {
  const int64_t unit = round_up(80 + 16, 16 * world_size);
  return (1 + layers) * unit * 4 / world_size;
}

// Rank r's tokens, different on each rank. [5] int64
inline at::Tensor toy_tokens(int rank) {
  return (at::arange(5) * 3 + 7 * rank + 1).remainder(11);
}

}  // namespace fsdp
