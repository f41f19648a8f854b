#include <strategies/fsdp/what_backward_reads.h>
#include <wrap_policy.h>

#include <numeric>

#include "models.h"
#include "trained.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(RootUntilRanks);

// Its modules one after another, in the order of their registration or in another one.
struct Chain : Module {
  explicit Chain(const std::vector<std::shared_ptr<Module>>& modules,
                 std::vector<size_t> in_order = {})
      : order(std::move(in_order)) {
    for (size_t i = 0; i < modules.size(); ++i)
      steps.push_back(register_module(std::to_string(i), modules[i]));
    if (!order.empty()) return;
    order.resize(modules.size());
    std::iota(order.begin(), order.end(), 0);
  }
  at::Tensor forward(at::Tensor x) override {
    for (const size_t i : order)
      x = (*steps[i])(x);
    return x;
  }
  std::vector<std::shared_ptr<Module>> steps;
  std::vector<size_t> order;
};

std::shared_ptr<Module> linear(int64_t in, int64_t out) {
  return std::make_shared<Linear>(at::randn({out, in}) / 8);
}

std::shared_ptr<Module> gain() {
  return std::make_shared<Gain>();
}

// The largest units come first, the root's own parameter after the third.
std::shared_ptr<Module> funnel() {
  return std::make_shared<Chain>(
      std::vector{linear(8, 40), linear(40, 8), linear(8, 8), gain(), linear(8, 8)});
}

Workload workload_of(const std::function<std::shared_ptr<Module>()>& model) {
  const auto build = [model] {
    torch::manual_seed(5);
    return model();
  };
  const auto loss = [](Module& called, int part, int parts, int64_t step) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(step));
    return called(at::randn({12, kWidth}, generator).chunk(parts)[part]).square().mean();
  };
  return {build, loss};
}

TrainConfig config_of(const std::string& mode, int world_size, const std::string& wrap) {
  TrainConfig config = extension_config(mode, world_size);
  config.wrap = wrap;
  return config;
}

std::string freed_after(const std::function<std::shared_ptr<Module>()>& model,
                        const std::string& wrap) {
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    const ShardLayout layout = shard_layout(config_of("fsdp", 1, wrap), workload_of(model));
    rank.observe("unit", layout.root_until ? layout.units[*layout.root_until].name : "none");
  });
  return run.at(0, "unit").get<std::string>();
}

MULTI_RANK_TEST(RootUntilRanks, the_root_is_freed_before_the_largest_units_come_back) {
  const Workload workload = workload_of(funnel);
  const auto expected = hash_of_single(config_of("fsdp", world_size(), "type:Linear"), workload);
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    train_as_predicted(rank, config_of("fsdp", world_size(), "type:Linear"), workload);
    const int64_t both = round_up(8 * 40, kAlignment * world_size()) * 2 * 4;
    rank.observe("bytes besides the two largest units",
                 live_bytes::peak(Phase::backward)[MemoryClass::gathered] - both);
  });
  expect_as_predicted(run);
  expect_on_all_ranks(run, "bytes besides the two largest units", 0);
  expect_on_rank(run, 0, "hash", expected);
}

MULTI_RANK_TEST(RootUntilRanks, a_model_that_runs_in_another_order_keeps_its_root_and_its_bits) {
  const auto model = [] {
    return std::make_shared<Chain>(std::vector{linear(8, 8), linear(8, 8), gain()},
                                   std::vector<size_t>{0, 2, 1});
  };
  const TrainConfig config = config_of("fsdp", world_size(), "type:Linear");
  const auto expected = hash_of_single(config, workload_of(model));
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const auto strategy = make_fsdp_strategy(config, workload_of(model), rank.communicator());
    const std::string hash = hash_after_two_steps(*strategy, config);
    if (rank.rank() == 0) rank.observe("hash", hash);
  });
  expect_on_rank(run, 0, "hash", expected);
}

MULTI_RANK_TEST(RootUntilRanks, a_graph_that_is_kept_keeps_the_root) {
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    torch::manual_seed(5);
    const auto model = funnel();
    const auto sharded = fully_shard(*model, rank.communicator(), {.wrap = wrap_by_type("Linear")});
    const auto unit = root_until(*model, sharded->layout());
    reshard_root_early(*model, *sharded, unit.value());
    std::string states;
    auto& last = dynamic_cast<Module&>(*model->children().at(2));
    last.register_full_backward_hook([&](Module&) {
      states += sharded->units().front()->state() == UnitState::sharded ? "freed " : "kept ";
    });
    const auto loss = (*model)(at::ones({3, 8}).requires_grad_()).sum();
    loss.backward({}, /*keep_graph=*/true);
    loss.backward();
    rank.observe("the root after unit 2", states);
  });
  expect_on_all_ranks(run, "the root after unit 2", "kept freed ");
}

TEST(RootUntil, is_the_unit_in_forward_before_the_first_module_whose_backward_reads_the_root) {
  EXPECT_EQ(freed_after([] { return tied_model(200); }, "block"), "h.2");
  EXPECT_EQ(freed_after([] { return untied_model(20); }, "block"), "layers.2");
  EXPECT_EQ(freed_after(funnel, "type:Linear"), "2");
}

TEST(RootUntil, is_none_where_the_root_is_read_before_every_unit_or_is_alone_or_missing) {
  const auto first = [] { return std::make_shared<Chain>(std::vector{gain(), linear(8, 8)}); };
  EXPECT_EQ(freed_after(first, "type:Linear"), "none");
  EXPECT_EQ(freed_after(funnel, "none"), "none");
  const auto all = [] { return std::make_shared<Chain>(std::vector{linear(8, 8), linear(8, 8)}); };
  EXPECT_EQ(freed_after(all, "type:Linear"), "none");
}

}  // namespace
}  // namespace fsdp
