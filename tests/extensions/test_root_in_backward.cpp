#include <array>

#include "models.h"
#include "trained.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(RootInBackward);

// The root's own parameter is registered last, but read between the two units.
struct GainBetween : Module {
  GainBetween() {
    for (auto& layer : layers)
      layer = std::make_shared<Linear>(at::randn({kWidth, kWidth}) / 8);
    register_module("first", layers[0]);
    register_module("second", layers[1]);
    register_module("gain", gain);
  }
  at::Tensor forward(at::Tensor x) override { return (*layers[1])((*gain)((*layers[0])(x))); }
  std::array<std::shared_ptr<Linear>, 2> layers;
  std::shared_ptr<Gain> gain = std::make_shared<Gain>();
};

// The loss holds the parameters in forward, as an average of the weights does, and no longer.
MULTI_RANK_TEST(RootInBackward, stays_gathered_for_the_graph_whoever_has_held_it_besides) {
  const auto build = [] {
    torch::manual_seed(5);
    return std::make_shared<GainBetween>();
  };
  const auto loss = [](Module& called, int part, int parts, int64_t step) {
    const std::vector<at::Tensor> held = called.parameters();
    auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(step));
    return called(at::randn({12, kWidth}, generator).chunk(parts)[part]).square().mean();
  };
  TrainConfig config = extension_config("fsdp", world_size());
  config.wrap = "type:Linear";
  expect_as_predicted(config, {build, loss}, hash_of_single(config, {build, loss}));
}

}  // namespace
}  // namespace fsdp
