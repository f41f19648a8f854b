#include <library/models.h>
#include <library/one_process.h>
#include <memory/live_bytes.h>
#include <nn/lora.h>

#include <string>

namespace fsdp {
namespace {

MULTI_RANK_SUITE(FrozenUnit);

// Returns a model in which the weights of blocks 0 and 1 are frozen, and all of block 2.
std::shared_ptr<Module> partly_frozen_net() {
  const auto net = std::make_shared<BlockNet>();
  for (int block = 0; block < 3; ++block)
    net->blocks[block]->linear->weight.set_requires_grad(false);
  net->blocks[2]->linear->bias.set_requires_grad(false);
  return net;
}

struct AdaptedBlock : Module {
  explicit AdaptedBlock(int64_t width = 7)
      : layer(register_module("layer",
                              std::make_shared<LoraLinear>(torch::nn::Linear(width, width),
                                                           LoraOptions{.rank = 2, .alpha = 4}))) {}
  at::Tensor forward(at::Tensor x) override { return x + (*layer)(x).tanh(); }
  std::shared_ptr<LoraLinear> layer;
};

std::vector<Training> trainings() {
  std::vector<Training> all{{"partly frozen", partly_frozen_net},
                            {"adapters", built<RowOf<AdaptedBlock>>}};
  for (size_t i = 0; i < 2; ++i) {
    all.push_back(all[i]);
    all.back().name += ", one unit";
    all.back().options.wrap = wrap_none();
    all.push_back(all[i]);
    all.back().name += ", stays unsharded after forward";
    all.back().options.reshard_after_forward = false;
  }
  return all;
}

MULTI_RANK_TEST(FrozenUnit, a_unit_with_frozen_parameters_trains_as_in_one_process) {
  expect_equal_to_one_process(world_size(), trainings());
}

// A backward pass reduces 7 elements for block 0, 7 for block 1 and 7 for the root. Each of the
// three is padded to a multiple of 16 W elements.
MULTI_RANK_TEST(FrozenUnit, no_frozen_parameter_is_in_a_reduce_scatter_or_in_a_flat_gradient) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(2);
    const auto net = partly_frozen_net();
    FullyShardedDataParallel<Module> model(*net, rank.communicator());
    loss_of(*net, rank).backward();
    rank.communicator()->take_log();
    const int64_t before = live_bytes::now()[MemoryClass::sharded_gradients];
    loss_of(*net, rank).backward();
    int64_t reduced = 0;
    for (const Call& call : rank.communicator()->take_log())
      if (call.operation == Operation::reduce_scatter) reduced += call.numel;
    rank.observe("elements that are reduced", reduced);
    rank.observe("bytes of sharded gradients", before);
  });
  const int64_t padded = 3 * 16 * world_size();
  expect_on_all_ranks(run, "elements that are reduced", padded);
  expect_on_all_ranks(run, "bytes of sharded gradients", 4 * padded / world_size());
}

MULTI_RANK_TEST(FrozenUnit, a_parameter_unfrozen_after_a_step_is_trained_as_in_one_process) {
  constexpr int kFirst = 1;  // number of the step before which the weight is unfrozen
  const auto unfreeze = [](Module& net) {
    net.named_parameters()["b0.linear.weight"].set_requires_grad(true);
  };
  const RankRun expected = run_oracle([&](TestRank& oracle) {
    torch::manual_seed(2);
    const auto net = partly_frozen_net();
    std::vector<at::Tensor> parameters = net->parameters();
    const auto optimizer = momentum(parameters);
    for (int step = 0; step < kSteps; ++step) {
      if (step == kFirst) unfreeze(*net);
      backward_of_parts(parameters, world_size(), [&](int microbatch) {
        return mean_square(*net, microbatch, world_size(), step);
      });
      optimizer->step();
      optimizer->zero_grad();
    }
    for (const auto& item : net->named_parameters())
      oracle.observe(item.key(), item.value().detach());
  });
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    torch::manual_seed(2);
    const auto net = partly_frozen_net();
    FullyShardedDataParallel<Module> model(*net, rank.communicator());
    const auto optimizer = momentum(model.parameters());
    for (int step = 0; step < kSteps; ++step) {
      if (step == kFirst) unfreeze(*net);
      loss_of(*net, rank, step).backward();
      optimizer->step();
      optimizer->zero_grad();
    }
    for (const auto& entry : model.state_dict())
      rank.observe(entry.key(), entry.value());
  });
  expect_as(run, expected);
}

MULTI_RANK_TEST(FrozenUnit, merge_lora_merges_sharded_adapters_inside_summon_full_params) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(3);
    const auto net = std::make_shared<RowOf<AdaptedBlock>>();
    FullyShardedDataParallel<Module> model(*net, rank.communicator());
    const auto optimizer = momentum(model.parameters());
    loss_of(*net, rank).backward();
    optimizer->step();
    const at::NoGradGuard no_grad;
    const at::Tensor x = at::ones({2, 7});
    const at::Tensor before = (*net)(x);
    const at::Tensor weight = model.state_dict().at("b0.layer.weight").clone();
    model.summon_full_params([&] { merge_lora(*net); });
    const at::Tensor merged = model.state_dict().at("b0.layer.weight");
    rank.observe("the merged model computes the same", at::allclose((*net)(x), before, 1e-5, 1e-6));
    rank.observe("the weight has changed", !merged.equal(weight));
  });
  expect_on_all_ranks(run, "the merged model computes the same", true);
  expect_on_all_ranks(run, "the weight has changed", true);
}

}  // namespace
}  // namespace fsdp
