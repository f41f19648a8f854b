#include <torch/optim/lbfgs.h>
#include <torch/serialize.h>

#include <sstream>

#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

namespace fsdp {
namespace {

MULTI_RANK_SUITE(OptimizerState);

MULTI_RANK_TEST(OptimizerState, of_lbfgs_is_refused) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    torch::optim::LBFGS optimizer(model.parameters());
    EXPECT_CONTAINS(error_of([&] { model.optim_state_dict(optimizer); }), "is another optimizer");
    torch::optim::SGD of_module(net->parameters(), torch::optim::SGDOptions(0.1));
    EXPECT_CONTAINS(error_of([&] { model.optim_state_dict(of_module); }),
                    "none of model.parameters()");
  });
}

MULTI_RANK_TEST(OptimizerState, is_that_of_one_process) {
  const int steps = 2;
  const auto train = [](Module& net, torch::optim::Optimizer& optimizer, int world, int number) {
    net(batch_part(0, 1, number, {5, 7})).square().mean().backward();
    optimizer.step();
    optimizer.zero_grad();
  };
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator(), {.wrap = wrap_none()});
    const auto optimizer = adamw(model.parameters());
    for (int number = 0; number < steps; ++number)
      train(*net, *optimizer, rank.world_size(), number);
    const StateDict state = model.optim_state_dict(*optimizer);
    rank.observe("exp_avg", state.at("b1.linear.weight/exp_avg"));
    rank.observe("step", state.at("scale/step").item<int64_t>());
  });
  const RankRun one = run_oracle([&](TestRank& rank) {
    const auto net = block_net();
    torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(0.05));
    for (int number = 0; number < steps; ++number)
      train(*net, optimizer, 1, number);
    const auto& state = static_cast<const torch::optim::AdamWParamState&>(
        *optimizer.state()[net->blocks[1]->linear->weight.unsafeGetTensorImpl()]);
    rank.observe("exp_avg", state.exp_avg());
  });
  if (world_size() != 3) expect_on_all_ranks(run, "exp_avg", one.at(0, "exp_avg"));
  expect_on_all_ranks(run, "step", steps);
}

MULTI_RANK_TEST(OptimizerState, that_does_not_fit_is_refused) {
  run_ranks(world_size(), [](TestRank& rank) {
    ShardedNet sharded(rank);
    sharded.step();
    torch::optim::Optimizer& optimizer = *sharded.optimizer;
    const StateDict before = sharded.model.optim_state_dict(optimizer);
    const auto refused = [&](const std::function<void(StateDict&)>& change,
                             const std::string& says) {
      StateDict state = before.copy();
      change(state);
      EXPECT_CONTAINS(error_of([&] { sharded.model.load_optim_state_dict(optimizer, state); }),
                      says);
    };
    refused([](StateDict& state) { state.insert("late/exp_avg", at::ones({1})); },
            "has no late/exp_avg");
    refused([](StateDict& state) { EXPECT_EQ(state.erase("param_groups/0/options"), 1U); },
            "lacks param_groups/0/options");
    refused([](StateDict& state) { state.insert_or_assign("scale/exp_avg", at::ones({8})); },
            "scale/exp_avg is Float [8], and the parameter is Float [7]");
    sharded.model.load_optim_state_dict(optimizer, before);
  });
}

MULTI_RANK_TEST(OptimizerState, of_other_steps_is_refused) {
  if (world_size() == 1) return;
  run_ranks(world_size(), [](TestRank& rank) {
    ShardedNet sharded(rank);
    loss_of(*sharded.net, rank).backward();
    for (int step = 0; step <= rank.rank() % 2; ++step)
      sharded.optimizer->step();
    EXPECT_CONTAINS(error_of([&] { sharded.model.optim_state_dict(*sharded.optimizer); }),
                    "ranks differ in the optimizer's state of scale");
  });
}

MULTI_RANK_TEST(OptimizerState, may_be_saved_by_torch_into_a_file_of_each_rank) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    ShardedNet saved(rank), loaded(rank);
    saved.step();
    std::stringstream file;
    torch::save(*saved.optimizer, file);
    torch::load(*loaded.optimizer, file);
    loaded.model.load_state_dict(saved.model.state_dict());
    saved.step(1);
    loaded.step(1);
    rank.observe("saved", saved.all_parameters());
    rank.observe("loaded", loaded.all_parameters());
  });
  expect_on_all_ranks(run, "loaded", run.at(0, "saved"));
}

}  // namespace
}  // namespace fsdp
