#include <base/torch.h>
#include <testing/judge/cases.h>
#include <testing/toy_model.h>

#include <stdexcept>

namespace fsdp {
namespace {

constexpr int kLargeLayers = 16;

int64_t large_width() {
  return test_choice<int64_t>("width of a large model", {512, 509, 515, 520});
}

}  // namespace

ToyBlock::ToyBlock(int64_t width, int64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(test_seed(static_cast<uint64_t>(seed)));
  weight = register_parameter("weight", at::randn({width, width}, generator));
  bias = register_parameter("bias", at::randn({width}, generator));
  spare = register_parameter("spare", at::randn({3}, generator));
}

torch::Tensor ToyBlock::forward(torch::Tensor x) {
  ++calls;
  if (fails) throw std::runtime_error("the block failed");
  auto y = at::linear(x, weight, bias).tanh();
  return use_spare ? y * spare.sum() : y;
}

void ToyBlock::tie_weight(const at::Tensor& other) {
  parameters_["weight"] = other;
  weight = other;
}

ToyModel::ToyModel(int layers, int64_t width, int64_t vocabulary) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(test_seed(1));
  embedding = register_parameter("embedding", at::randn({vocabulary, width}, generator));
  for (int i = 0; i < layers; ++i) {
    blocks.push_back(std::make_shared<ToyBlock>(width, 100 + i));
    register_module("blocks" + std::to_string(i), blocks.back());
    order.push_back(i);
  }
  head = register_parameter("head", at::randn({width}, generator));
}

torch::Tensor ToyModel::forward(torch::Tensor tokens) {
  auto x = at::embedding(embedding, tokens);
  for (const int block : order)
    x = (*blocks[static_cast<size_t>(block)])(x);
  return at::mv(x, head);
}

std::vector<ToyUnit> toy_units(ToyModel& model) {
  std::vector<ToyUnit> units{
      {&model, "root", {{"embedding", model.embedding}, {"head", model.head}}}};
  for (const auto& block : model.blocks) {
    units.push_back({block.get(),
                     "blocks" + std::to_string(units.size() - 1),
                     {{"weight", block->weight}, {"bias", block->bias}, {"spare", block->spare}}});
  }
  return units;
}

int64_t toy_bytes(int layers, int64_t width) {
  // The root's parameters are the embedding, [11, width], and the head, [width].
  const int64_t root = 12 * width;
  return (root + layers * (width * width + width + 3)) * int64_t{sizeof(float)};
}

std::shared_ptr<ToyModel> large_toy() {
  return std::make_shared<ToyModel>(kLargeLayers, large_width());
}

int64_t large_toy_bytes() {
  return toy_bytes(kLargeLayers, large_width());
}

int64_t toy_shard_bytes(int layers, int world_size) {
  // With the default sizes, each parameter takes a multiple of 16 elements in its unit, so every
  // unit has 96 elements before it is padded for the ranks.
  const int64_t unit = round_up(96, kAlignment * world_size);
  return (1 + layers) * unit * int64_t{sizeof(float)} / world_size;
}

at::Tensor toy_tokens(int rank) {
  return (at::arange(5) * 3 + 7 * rank + 1).remainder(11);
}

}  // namespace fsdp
