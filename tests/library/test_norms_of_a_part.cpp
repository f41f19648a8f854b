#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/lbfgs.h>

#include <library/infinity.h>
#include <library/misuse.h>

// What would take the norm of this rank's part of a gradient for that of the gradient.
namespace fsdp {
namespace {

MULTI_RANK_SUITE_ON(NormsOfAPart, 2, 3, 4);

const double kInfiniteNorm = std::numeric_limits<double>::infinity();

// With one rank this rank's part is the whole gradient: the norms are right, and LBFGS steps.
TEST(NormsOnOneRank, are_those_of_the_gradient_and_lbfgs_steps) {
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
    EXPECT_FALSE(sharded.all_parameters().equal(before)) << "which the step changed";
  });
}

void step_of_lbfgs(ShardedNet& one) {
  torch::optim::LBFGS optimizer(one.model.parameters());
  backward(one);
  optimizer.step([&] { return loss_of(*one.net, one.rank); });
}

MULTI_RANK_TEST(NormsOfAPart, are_refused_in_lbfgs_by_what_it_can_not_do) {
  expect_refused(world_size(), {"LBFGS can't be used", step_of_lbfgs});
}

MULTI_RANK_TEST(NormsOfAPart, are_refused_in_lbfgs_by_the_norm_to_take) {
  expect_refused(world_size(), {"model.clip_grad_norm_()", step_of_lbfgs});
}

MULTI_RANK_TEST(NormsOfAPart, are_refused_in_torchs_clip_grad_norm_of_every_type) {
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
