#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

// Tests calls that ask autograd for gradients of the tensors of model.parameters().
namespace fsdp {
namespace {

MULTI_RANK_SUITE(LeafGradient);

using Tensors = std::vector<at::Tensor>;
using torch::autograd::grad;

MULTI_RANK_TEST(LeafGradient,
                autograd_grad_and_backward_throw_if_their_inputs_are_model_parameters) {
  run_ranks(world_size(), [](TestRank& rank) {
    ShardedNet sharded(rank, momentum);
    const Tensors leaves = sharded.model.parameters();
    const at::Tensor x = batch_part(rank.rank(), rank.world_size(), 0, {5, 7}).requires_grad_();
    const std::vector<std::function<void(const at::Tensor& loss)>> ways{
        [&](const at::Tensor& loss) { grad({loss}, leaves); },
        [&](const at::Tensor& loss) { grad({loss}, leaves, {}, {}, false, /*allow_unused=*/true); },
        [&](const at::Tensor& loss) {
          grad({loss}, {x, leaves[3]});
        },
        [&](const at::Tensor& loss) {
          grad({loss}, {x, leaves[3]}, {}, {}, false, true);
        },
        [&](const at::Tensor& loss) { grad({loss}, {leaves[3]}, {}, true, /*create_graph=*/true); },
        [&](const at::Tensor& loss) { loss.backward({}, false, false, leaves); },
        [&](const at::Tensor& loss) {
          loss.backward({}, false, false, Tensors{x, leaves[3]});
        },
        [&](const at::Tensor& loss) {
          (loss + this_ranks_part(leaves[3]).sum()).backward({}, false, false, Tensors{leaves[3]});
        }};
    for (const auto& way : ways) {
      const at::Tensor loss = (*sharded.net)(x).square().mean();
      const std::string error = error_of([&] { way(loss); });
      EXPECT_CONTAINS(error,
                      "which is sharded, would be of this rank's batch alone; run backward()");
      EXPECT_CONTAINS(error, "take .grad of model.parameters()");
      EXPECT_CONTAINS(error, "autograd::grad() of parameter ");
      for (const at::Tensor& leaf : leaves)
        EXPECT_FALSE(leaf.grad().defined());
      sharded.step();
    }
  });
}

MULTI_RANK_TEST(LeafGradient,
                the_error_of_autograd_grad_names_the_parameter_even_after_it_was_unfrozen) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto net = block_net();
    net->scale.set_requires_grad(false);
    ShardedNet sharded(rank, momentum, net);
    net->scale.set_requires_grad(true);
    at::Tensor leaf = sharded.model.named_parameters()["scale"];
    const std::string says = "autograd::grad() of parameter scale, which is sharded";
    EXPECT_CONTAINS(error_of([&] { grad({loss_of(*net, rank)}, {leaf}); }), says);
    const auto another = block_net(1);
    FullyShardedDataParallel second(*another, rank.communicator());
    EXPECT_CONTAINS(error_of([&] {
                      grad({loss_of(*net, rank) + loss_of(*another, rank)},
                           {second.named_parameters()["b0.linear.bias"]});
                    }),
                    "of parameter b0.linear.bias");
  });
}

// autograd::grad() is called for the plain tensor of this_ranks_part(), for the input of the model,
// for a tensor that belongs to no model, and for a copy of a leaf whose model was destroyed.
MULTI_RANK_TEST(LeafGradient, autograd_grad_of_tensors_that_are_not_model_parameters_is_right) {
  run_ranks(world_size(), [](TestRank& rank) {
    at::Tensor left;
    {
      ShardedNet sharded(rank);
      left = sharded.model.parameters()[0];
      const at::Tensor part = this_ranks_part(left);
      EXPECT_TRUE(at::equal(grad({part.square().sum()}, {part})[0], 2 * part));
      const at::Tensor x = at::ones({2, 7}).requires_grad_();
      EXPECT_TRUE(grad({(*sharded.net)(x).sum()}, {x})[0].defined());
      const at::Tensor y = at::ones({3}).requires_grad_();
      EXPECT_TRUE(at::equal(grad({y.square().sum()}, {y})[0], at::full({3}, 2.0)));
      sharded.step();
    }
    left = left.detach().clone().requires_grad_();
    grad({this_ranks_part(left).sum()}, {left});
  });
}

}  // namespace
}  // namespace fsdp
