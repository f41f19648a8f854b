#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

// Tests parameters without elements. They are in units that have only such parameters, in units
// that also have other parameters, and in the root.
namespace fsdp {
namespace {

// A block that adds the rows of its memories to its input. Some memories have no rows.
struct MemoryBlock : Module {
  explicit MemoryBlock(const std::vector<int64_t>& rows) {
    for (size_t i = 0; i < rows.size(); ++i)
      memories.push_back(register_parameter("memory" + std::to_string(i), at::randn({rows[i], 7})));
  }
  at::Tensor forward(at::Tensor x) override {
    std::vector<at::Tensor> rows{x};
    rows.insert(rows.end(), memories.begin(), memories.end());
    return at::cat(rows).sum(0) + x;
  }
  std::vector<at::Tensor> memories;
};

// A model that calls memory blocks with the given numbers of rows, and then a block with weights.
struct MemoryNet : Module {
  explicit MemoryNet(const std::vector<std::vector<int64_t>>& rows, bool empty_root = false) {
    for (size_t i = 0; i < rows.size(); ++i)
      memories.push_back(
          register_module("m" + std::to_string(i), std::make_shared<MemoryBlock>(rows[i])));
    if (empty_root) none = register_parameter("none", at::zeros({3, 0}));
  }
  at::Tensor forward(at::Tensor x) override {
    for (const auto& memory : memories)
      x = (*memory)(x);
    x = (*block)(x);
    return none.defined() ? x + none.sum() : x;
  }
  std::vector<std::shared_ptr<MemoryBlock>> memories;
  std::shared_ptr<LayerBlock> block = register_module("block", std::make_shared<LayerBlock>());
  at::Tensor none;
};

Training training(const std::string& name, const std::vector<std::vector<int64_t>>& rows,
                  bool empty_root = false, const FullyShardedDataParallelOptions& options = {}) {
  return {.name = name,
          .build = [=] { return std::make_shared<MemoryNet>(rows, empty_root); },
          .options = options};
}

MULTI_RANK_SUITE(EmptyUnit);

MULTI_RANK_TEST(EmptyUnit, a_model_with_parameters_without_elements_trains_as_in_one_process) {
  expect_equal_to_one_process(
      world_size(),
      {training("one", {{0}}), training("two of two", {{0, 0}, {0, 0}}),
       training("first of two parameters", {{0, 3}}), training("last of two", {{2, 0}, {0}}),
       training("root", {{2}}, true), training("root and units", {{0}, {0, 0}}, true),
       training("all in one unit", {{0}, {3, 0}}, true, {.wrap = wrap_none()}),
       training("stays unsharded", {{0}, {3, 0}}, true, {.reshard_after_forward = false})});
}

MULTI_RANK_TEST(EmptyUnit, a_unit_of_empty_parameters_can_be_frozen_ignored_or_bf16_and_saved) {
  in_each_strategy(world_size(), [](TestRank& rank, const std::shared_ptr<Communicator>& comm) {
    for (const int kind : {0, 1, 2, 3}) {
      torch::manual_seed(1);
      MemoryNet net({{0}, {0, 2}}, /*empty_root=*/true);
      if (kind == 0) net.memories[0]->memories[0].set_requires_grad(false);
      FullyShardedDataParallelOptions options;
      if (kind == 1) options.ignored = {net.memories[0].get()};
      if (kind == 2) options.mixed_precision = {at::kBFloat16, at::kFloat};
      const WarningsOf warnings;
      FullyShardedDataParallel model(net, comm, options);
      const auto optimizer = adamw(model.parameters());
      for (const bool no_sync : {true, false}) {
        std::optional<NoSync> scope;
        if (no_sync) scope = model.no_sync();
        const at::Tensor x = batch_part(rank.rank(), rank.world_size(), 0, {5, 7});
        model(x).to(at::kFloat).square().mean().backward();
      }
      model.clip_grad_norm_(1);
      optimizer->step();
      optimizer->zero_grad();
      const StateDict state = model.state_dict(), moments = model.optim_state_dict(*optimizer);
      EXPECT_EQ(state.at("m0.memory0").numel(), 0);
      EXPECT_EQ(state.at("m1.memory1").numel(), 14);
      model.load_state_dict(state);
      model.load_optim_state_dict(*optimizer, moments);
      model.summon_full_params([&] { EXPECT_EQ(net.memories[0]->memories[0].numel(), 0); });
      {
        const at::NoGradGuard no_grad;
        model(at::ones({2, 7}));
      }
    }
  });
}

}  // namespace
}  // namespace fsdp
