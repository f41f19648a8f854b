#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/lbfgs.h>

#include <library/infinity.h>
#include <library/misuse.h>

// Functions of torch's that would use the norm of this rank's part of a gradient in place of the
// norm of the whole gradient.
namespace fsdp {
namespace {

MULTI_RANK_SUITE_ON(PartialNorm, 2, 3, 4);

const double kInfiniteNorm = std::numeric_limits<double>::infinity();

// With one rank, this rank's part is the whole gradient.
TEST(NormOnOneRank, norms_are_right_and_lbfgs_steps_on_one_rank) {
  run_ranks(1, [](TestRank& rank) {
    ShardedNet sharded(rank, momentum);
    for (const double type : {1.0, 2.0, kInfiniteNorm}) {
      backward(sharded);
      const double norm = sharded.model.clip_grad_norm_(1e9, type);
      EXPECT_NEAR(torch::nn::utils::clip_grad_norm_(sharded.model.parameters(), 1e9, type), norm,
                  1e-5 * norm);
      EXPECT_GT(norm, 0);
    }
    sharded.model.zero_grad();
    const at::Tensor before = sharded.all_parameters();
    torch::optim::LBFGS lbfgs(sharded.model.parameters(), torch::optim::LBFGSOptions(0.1));
    lbfgs.step([&] {
      lbfgs.zero_grad();
      const at::Tensor loss = loss_of(*sharded.net, rank);
      loss.backward();
      return loss;
    });
    EXPECT_FALSE(sharded.all_parameters().equal(before))
        << "the step of LBFGS changed no parameter";
  });
}

void step_of_lbfgs(ShardedNet& one) {
  torch::optim::LBFGS optimizer(one.model.parameters());
  backward(one);
  optimizer.step([&] { return loss_of(*one.net, one.rank); });
}

MULTI_RANK_TEST(PartialNorm, the_error_of_lbfgs_says_that_it_cannot_be_used) {
  expect_refused(world_size(), {"LBFGS can't be used", step_of_lbfgs});
}

MULTI_RANK_TEST(PartialNorm, the_error_of_lbfgs_names_the_norm_to_use) {
  expect_refused(world_size(), {"model.clip_grad_norm_()", step_of_lbfgs});
}

MULTI_RANK_TEST(PartialNorm, torchs_clip_grad_norm_throws_for_every_norm_type) {
  for (const double type : {1.0, 2.0, kInfiniteNorm}) {
    SCOPED_TRACE(type);
    expect_refused(world_size(), {"model.clip_grad_norm_()", [=](ShardedNet& one) {
                                    backward(one);
                                    torch::nn::utils::clip_grad_norm_(one.model.parameters(), 1.0,
                                                                      type);
                                  }});
  }
}

}  // namespace
}  // namespace fsdp
