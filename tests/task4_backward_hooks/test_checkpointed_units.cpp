#include <checkpoint_activations.h>

#include "sharded_model.h"

// Tests of checkpoint_activations() for blocks that are FSDP units.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(T4_6_checkpointed_units);

MULTI_RANK_TEST(T4_6_checkpointed_units,
                checkpointed_units_call_the_collectives_that_they_call_without_checkpoints) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const Sharded sharded(rank);
    for (const auto& block : sharded.model->blocks)
      checkpoint_activations(*block);
    take_calls(*rank.communicator());
    const at::Tensor loss = plain_loss(*sharded.model, rank.rank());
    rank.observe("collectives of forward", take_calls(*rank.communicator()));
    loss.backward();
    rank.observe("collectives of backward", take_calls(*rank.communicator()));
    std::string runs;
    for (const auto& block : sharded.model->blocks)
      runs += std::to_string(block->calls) + " ";
    rank.observe("runs of each block's forward()", runs);
  });
  expect_on_all_ranks(run, "runs of each block's forward()", "2 2 2 ");
  expect_on_all_ranks(run, "collectives of forward", kForward);
  expect_on_all_ranks(run, "collectives of backward", kBackward);
}

MULTI_RANK_TEST(T4_6_checkpointed_units, checkpointed_units_are_unsharded_one_at_a_time) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const Sharded sharded(rank);
    for (const auto& block : sharded.model->blocks)
      checkpoint_activations(*block);
    const auto seen = look_at_arrivals(sharded, [&] { return sharded.gathered(); });
    plain_loss(*sharded.model, rank.rank()).backward();
    rank.observe("units gathered as each gradient arrives", *seen);
    rank.observe("units gathered after the pass", sharded.gathered());
  });
  expect_on_all_ranks(run, "units gathered as each gradient arrives",
                      "root blocks2 | root blocks1 | root blocks0 | ");
  expect_on_all_ranks(run, "units gathered after the pass", "");
}

MULTI_RANK_TEST(T4_6_checkpointed_units, checkpointed_units_have_the_gradients_of_one_process) {
  const Loss loss = [](ToyModel& model, int rank) {
    model.blocks[1]->use_spare = false;  // the parameter `spare` of block 1 gets no gradient
    return kBlockUsedTwice(model, rank);
  };
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const Sharded sharded(rank);
    for (const auto& block : sharded.model->blocks)
      checkpoint_activations(*block);
    loss(*sharded.model, rank.rank()).backward();
    sharded.observe_gradients(rank);
  });
  expect_gradients_of_one_process(run, loss);
}

// A module whose unit holds the parameters of the block inside.
struct Around : Module {
  Around() : block(register_module("block", std::make_shared<ToyBlock>(7, 3))) {}
  at::Tensor forward(at::Tensor x) override { return (*block)(x); }
  std::shared_ptr<ToyBlock> block;
};

// Observes the collectives of a forward and a backward pass of a module of the class Around, and
// the sharded gradient of its unit.
void observe_around(TestRank& rank, bool checkpointed, const std::string& prefix) {
  Around module;
  auto unit = make_flat_parameter("around", distinct_parameters(module), rank.communicator());
  register_forward_hooks(module, unit, /*reshard_after_forward=*/true);
  const auto hooks = make_backward_hooks();
  hooks->add(module, unit);
  if (checkpointed) checkpoint_activations(*module.block);
  take_calls(*rank.communicator());
  module(at::full({5, 7}, 0.1 * (1 + rank.rank())).set_requires_grad(true)).sum().backward();
  rank.observe(prefix + "collectives", take_calls(*rank.communicator()));
  rank.observe(prefix + "gradient", unit->sharded_gradient());
  rank.observe(prefix + "runs of the block's forward()", module.block->calls);
}

MULTI_RANK_TEST(T4_6_checkpointed_units, a_unit_around_a_checkpointed_module_computes_the_same) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    observe_around(rank, false, "without: ");
    observe_around(rank, true, "");
  });
  expect_on_all_ranks(run, "runs of the block's forward()", 2);
  for (const std::string name : {"collectives", "gradient"}) {
    expect_on_each_rank(run, name, [&](int r) { return run.at(r, "without: " + name); });
  }
}

MULTI_RANK_TEST(T4_6_checkpointed_units,
                calling_a_checkpointed_module_with_a_unit_inside_throws_in_grad_mode) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const Sharded sharded(rank);
    checkpoint_activations(*sharded.model);
    {
      const at::NoGradGuard no_grad;
      (*sharded.model)(toy_tokens(rank.rank()));
    }
    std::string thrown = "nothing";
    try {
      (*sharded.model)(toy_tokens(rank.rank()));
    } catch (const std::logic_error&) {
      thrown = "std::logic_error";
    }
    rank.observe("thrown by a call", thrown);
  });
  expect_on_all_ranks(run, "thrown by a call", "std::logic_error");
}

}  // namespace
}  // namespace fsdp
