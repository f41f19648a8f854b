#include <ATen/autocast_mode.h>

#include <common/expect_text.h>
#include <library/context_block.h>

// Tests checkpoint_activations() of units with inputs and outputs of any types.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(CheckpointedModuleOf);

struct ContextNet : Module {
  ContextNet() {
    for (int i = 0; i < 3; ++i)
      blocks.push_back(register_module(std::to_string(i), std::make_shared<ContextBlock>()));
  }
  // All blocks get the same contexts, so the gradient of a context is a sum over the blocks' calls.
  at::Tensor forward(at::Tensor x) override {
    const std::vector<at::Tensor> contexts{x * scale, x.flip(0) - scale};
    at::Tensor more = at::zeros({});
    for (const auto& block : blocks) {
      const ContextOutput made = (*block)(x, contexts, block == blocks.front() ? "tanh" : "relu");
      x = made.y;
      // The loss does not depend on `aside`, the second output, of the last block. So this output
      // gets no gradient.
      if (block != blocks.back()) more = more + *made.aside;
    }
    return x * (1 + more);
  }
  std::vector<std::shared_ptr<ContextBlock>> blocks;
  at::Tensor scale = register_parameter("scale", at::randn({kContextWidth}));
};

StateDict trained_state(TestRank& rank, bool checkpointed, bool autocast) {
  torch::manual_seed(1);
  ContextNet net;
  if (checkpointed)
    for (const auto& block : net.blocks)
      checkpoint_activations(*block);
  FullyShardedDataParallel model(net, rank.communicator(), {.wrap = wrap_by_type("ContextBlock")});
  EXPECT_EQ(model.units().size(), 4U);
  const auto optimizer = adamw(model.parameters());
  for (int step = 0; step < 3; ++step) {
    torch::manual_seed(step);
    at::autocast::set_autocast_enabled(at::kCPU, autocast);
    const at::Tensor loss = loss_of(net, rank, step);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    loss.backward();
    optimizer->step();
    optimizer->zero_grad();
  }
  at::autocast::clear_cache();
  for (const auto& block : net.blocks)
    EXPECT_EQ(block->runs, checkpointed ? 6 : 3);
  return model.state_dict();
}

MULTI_RANK_TEST(CheckpointedModuleOf, activation_checkpointing_does_not_change_the_trained_state) {
  run_ranks(world_size(), [](TestRank& rank) {
    for (const bool autocast : {false, true}) {
      const StateDict expected = trained_state(rank, false, autocast),
                      found = trained_state(rank, true, autocast);
      for (const auto& entry : expected)
        EXPECT_TRUE(at::equal(found.at(entry.key()), entry.value())) << entry.key();
    }
  });
}

MULTI_RANK_TEST(CheckpointedModuleOf, calling_a_checkpointed_module_that_contains_a_unit_throws) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    const auto outer = std::make_shared<CallsContextBlock>();
    checkpoint_activations(*outer);
    FullyShardedDataParallel model(*outer, rank.communicator(),
                                   {.wrap = wrap_by_type("ContextBlock")});
    EXPECT_CONTAINS(error_of([&] { (*outer)(context_rows()); }),
                    "a unit inside it holds parameter 0.linear.");
  });
}

}  // namespace
}  // namespace fsdp
