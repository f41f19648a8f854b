#include <testing/call_text.h>

#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>
#include <task4_backward_hooks/inner_passes.h>

// Tests backward passes inside backward passes, with FullyShardedDataParallel and with
// DistributedDataParallel. tests/properties generates more of them.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(InnerBackwardPass);

fsdp::Step call_of(const std::shared_ptr<LayerBlock>& block) {
  return [block](const at::Tensor& x) { return (*block)(x); };
}

// A model that checkpoints each block by hand. The input is scaled first, because a block that is
// checkpointed by hand is in the graph only if its input requires a gradient.
struct CheckpointedNet : BlockNet {
  at::Tensor forward(at::Tensor x) override {
    x = x * scale;
    for (const auto& block : blocks)
      x = by_hand(x, call_of(block));
    return x;
  }
};

struct ImplicitNet : BlockNet {
  at::Tensor forward(at::Tensor x) override {
    return (*blocks[2])(implicit_layer(*blocks[1], (*blocks[0])(x))) * scale;
  }
};

// Divides the microbatch in two and checkpoints a call of the whole model for each half, as a
// gradient cache does.
at::Tensor loss_in_two_checkpoints(Module& model, int microbatch, int microbatches, int step) {
  const at::Tensor x = batch_part(microbatch, microbatches, step, {6, 7});
  const at::Tensor zero = at::zeros({}).requires_grad_();
  at::Tensor sum = zero;
  for (const at::Tensor& rows : x.chunk(2))
    sum = sum + by_hand(zero, [&model, rows](const at::Tensor& z) {
            return model(rows).square().mean() + z;
          });
  return sum;
}

MULTI_RANK_TEST(InnerBackwardPass,
                a_training_with_nested_backward_passes_ends_with_the_bits_of_one_process) {
  expect_equal_to_one_process(
      world_size(),
      {{.name = "blocks by hand", .build = built<CheckpointedNet>},
       {.name = "blocks by hand, kept",
        .build = built<CheckpointedNet>,
        .options = {.reshard_after_forward = false, .limit = 3}},
       {.name = "one unit", .build = built<CheckpointedNet>, .options = {.wrap = wrap_none()}},
       {.name = "implicit layer", .build = built<ImplicitNet>},
       {.name = "whole model by hand", .loss = loss_in_two_checkpoints}});
}

MULTI_RANK_TEST(InnerBackwardPass,
                a_block_checkpointed_by_hand_is_reduced_before_the_next_one_is_recomputed) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(2);
    CheckpointedNet net;
    const FullyShardedDataParallel model(net, rank.communicator(),
                                         {.wrap = wrap_by_type("LayerBlock"), .limit = 1});
    const at::Tensor loss = loss_of(net, rank);
    take_calls(*rank.communicator());
    loss.backward();
    rank.observe("collectives of backward", take_calls(*rank.communicator()));
  });
  std::string expected;
  for (const std::string block : {"b2", "b1", "b0"})
    expected +=
        "all_gather " + block + "; all_gather " + block + "; reduce_scatter " + block + "; ";
  expect_on_all_ranks(run, "collectives of backward", expected + "reduce_scatter root; ");
}

MULTI_RANK_TEST(InnerBackwardPass, a_model_can_be_trained_in_a_backward_hook_of_another_model) {
  run_ranks(world_size(), [](TestRank& rank) {
    ShardedNet outer(rank), inside(rank), plain(rank);
    for (int number = 0; number < kSteps; ++number) {
      const at::Tensor out =
          (*outer.net)(batch_part(rank.rank(), rank.world_size(), number, {5, 7}));
      out.register_hook([&](const at::Tensor&) {
        const at::AutoGradMode with_gradients(true);
        inside.step(number);
      });
      out.square().mean().backward();
      outer.optimizer->step();
      outer.optimizer->zero_grad();
      plain.step(number);
      EXPECT_TRUE(at::equal(inside.all_parameters(), plain.all_parameters()));
      EXPECT_TRUE(at::equal(outer.all_parameters(), plain.all_parameters()));
    }
  });
}

MULTI_RANK_TEST(InnerBackwardPass, a_backward_inside_autograd_grad_throws_and_names_the_parameter) {
  run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(2);
    CheckpointedNet net;
    FullyShardedDataParallel model(net, rank.communicator());
    const at::Tensor x = at::ones({2, 7}).requires_grad_();
    const std::string error = error_of([&] { torch::autograd::grad({net(x).sum()}, {x}); });
    EXPECT_CONTAINS(error, "parameter b2.linear.");
    EXPECT_CONTAINS(error, "nothing would reduce it; run backward() in place of grad()");
    // After this error, the model can still be trained.
    loss_of(net, rank).backward();
    momentum(model.parameters())->step();
  });
}

// The outer backward pass throws at its end. FullyShardedDataParallel must then also drop the
// gradients that the inner backward passes have added.
MULTI_RANK_TEST(InnerBackwardPass,
                a_backward_pass_that_throws_drops_the_gradients_that_an_inner_pass_added) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto trained = [&](bool throws) {
      torch::manual_seed(2);
      CheckpointedNet net;
      FullyShardedDataParallel model(net, rank.communicator());
      const auto optimizer = momentum(model.parameters());
      for (int number = 0; number < kSteps; ++number) {
        if (throws) {
          const at::Tensor x = at::ones({2, 7}).requires_grad_();
          x.register_hook([](const at::Tensor&) { throw std::domain_error("at the end"); });
          EXPECT_THROW(net(x).sum().backward(), std::domain_error);
          model.zero_grad();
        }
        loss_of(net, rank, number).backward();
        optimizer->step();
        optimizer->zero_grad();
      }
      return model.state_dict().at("b1.linear.weight");
    };
    EXPECT_TRUE(at::equal(trained(false), trained(true)));
  });
}

}  // namespace
}  // namespace fsdp
