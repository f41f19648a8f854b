#pragma once

#include <nn/module.h>
#include <optim/shard_layout.h>

#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// Computes tanh(x weight^T + bias). With the usual width, 7, the numbers of elements of weight and
// bias are not divisible by 2, 3 or 4. If use_spare is true, the output is multiplied by the sum of
// `spare`; otherwise it does not depend on `spare`.
class ToyBlock : public Module {
 public:
  ToyBlock(int64_t width, int64_t seed);

  torch::Tensor forward(torch::Tensor x) override;  // throws if the member `fails` is true

  // Makes this block's weight another name of `other`, so that both are one parameter.
  void tie_weight(const at::Tensor& other);

  at::Tensor weight;  // [width, width]
  at::Tensor bias;    // [width]
  at::Tensor spare;   // [3]
  bool use_spare{true};
  bool fails{};
  int calls{};
};

// A small model for tests: an embedding of token ids, `layers` blocks, and a head.
class ToyModel : public Module {
 public:
  explicit ToyModel(int layers, int64_t width = 7, int64_t vocabulary = 11);

  torch::Tensor forward(torch::Tensor tokens) override;  // tokens [n] int64 -> [n]

  at::Tensor embedding;  // [vocabulary, width]
  at::Tensor head;       // [width]
  std::vector<std::shared_ptr<ToyBlock>> blocks;
  std::vector<int> order;  // indices of the blocks in the order of their calls
};

// A unit of a ToyModel: the root or a block, with its own parameters.
struct ToyUnit {
  Module* module;
  std::string name;  // name of the unit: "root", "blocks0", "blocks1", ...
  std::vector<NamedParameter> parameters;
};

// Returns the units of `model`: the root, then the blocks in order.
std::vector<ToyUnit> toy_units(ToyModel& model);

// Returns the number of bytes of all parameters of a ToyModel with the default vocabulary, without
// padding.
int64_t toy_bytes(int layers, int64_t width = 7);

// large_toy() returns a ToyModel of 16 blocks of 1 MB, which is large enough for RetainedMemory.
// large_toy_bytes() returns the toy_bytes() of this model.
std::shared_ptr<ToyModel> large_toy();
int64_t large_toy_bytes();

// Returns how many bytes the shards of all units of a ToyModel with the default sizes have on each
// of `world_size` ranks, with padding.
int64_t toy_shard_bytes(int layers, int world_size);

// Returns the token ids of `rank`, which differ between ranks: [5] int64.
at::Tensor toy_tokens(int rank);

}  // namespace fsdp
