#include <library/misuse.h>

// Tests misuses of gradients that are incomplete, because they have not been reduced or because a
// backward threw. The random programs of tests/properties show that no step uses such gradients.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(IncompleteGradient);

void pass_in_no_sync(ShardedNet& one) {
  backward(one);
  const NoSync no_sync = one.model.no_sync();
  backward(one);
}

void pass_that_throws(ShardedNet& one) {
  backward(one);
  const at::Tensor x = at::ones({2, 7}).requires_grad_();
  x.register_hook([](const at::Tensor&) { throw std::domain_error("broken"); });
  EXPECT_THROW((*one.net)(x).sum().backward(), std::exception);
}

MISUSE_TEST(IncompleteGradient, an_optimizer_step_is_refused_if_the_last_backward_ran_in_no_sync,
            "outside of no_sync()", [](ShardedNet& one) {
              pass_in_no_sync(one);
              one.optimizer->step();
            })

MISUSE_TEST(IncompleteGradient,
            zeroing_gradients_in_place_is_refused_if_the_last_backward_ran_in_no_sync,
            "outside of no_sync()", [](ShardedNet& one) {
              pass_in_no_sync(one);
              one.optimizer->zero_grad(false);
            })

MISUSE_TEST(IncompleteGradient, clipping_is_refused_if_the_last_backward_ran_in_no_sync,
            "outside of no_sync()", [](ShardedNet& one) {
              pass_in_no_sync(one);
              one.model.clip_grad_norm_(1);
            })

MISUSE_TEST(IncompleteGradient,
            zeroing_module_gradients_in_place_is_refused_if_the_last_backward_ran_in_no_sync,
            "model.parameters()", [](ShardedNet& one) {
              pass_in_no_sync(one);
              one.net->zero_grad(false);
            })

MISUSE_TEST(IncompleteGradient, an_optimizer_step_after_a_backward_that_threw_is_refused,
            "call zero_grad()", [](ShardedNet& one) {
              pass_that_throws(one);
              one.optimizer->step();
            })

MISUSE_TEST(IncompleteGradient, zeroing_gradients_in_place_after_a_backward_that_threw_is_refused,
            "call zero_grad()", [](ShardedNet& one) {
              pass_that_throws(one);
              one.optimizer->zero_grad(false);
            })

MISUSE_TEST(IncompleteGradient, clipping_after_a_backward_that_threw_is_refused, "call zero_grad()",
            [](ShardedNet& one) {
              pass_that_throws(one);
              one.model.clip_grad_norm_(1);
            })

MISUSE_TEST(IncompleteGradient,
            zeroing_module_gradients_in_place_after_a_backward_that_threw_is_refused,
            "model.parameters()", [](ShardedNet& one) {
              pass_that_throws(one);
              one.net->zero_grad(false);
            })

// Rank 0 owns all seven elements of the scale, so the other ranks read no gradient values.
MULTI_RANK_TEST(IncompleteGradient,
                clipping_unreduced_gradients_throws_even_on_ranks_that_own_none) {
  run_ranks(world_size(), [](TestRank& rank) {
    ShardedNet one(rank);
    for (const auto& block : one.net->blocks)
      for (at::Tensor& parameter : block->parameters())
        parameter.set_requires_grad(false);
    {
      const NoSync no_sync = one.model.no_sync();
      backward(one);
    }
    EXPECT_CONTAINS(error_of([&] { one.model.clip_grad_norm_(1); }),
                    "the gradients of unit root have not been reduced");
  });
}

}  // namespace
}  // namespace fsdp
