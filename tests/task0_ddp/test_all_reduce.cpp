#include <testing/provenance.h>

#include "replicated_toy.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T0_1_all_reduce);

RankRun run_backward(int world_size, const Loss& loss, const MakeToy& make = kReplicatedToy) {
  return run_ranks(world_size, [&](TestRank& rank) {
    const auto model = make();
    loss(*model, rank.rank()).backward();
    rank.communicator()->take_log();
    all_reduce_gradients(distinct_parameters(*model), *rank.communicator());
    rank.observe("calls", take_calls(*rank.communicator()));
    observe_gradients(rank, *model);
  });
}

MULTI_RANK_TEST(T0_1_all_reduce, gradients_are_the_mean_over_ranks_bit_by_bit) {
  expect_means(run_backward(world_size(), kPlainLoss));
}

MULTI_RANK_TEST(T0_1_all_reduce, every_ranks_gradient_counts_exactly_once) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const at::Tensor weight = at::zeros({5}).requires_grad_(true);
    const auto share = static_cast<double>(provenance::gradient(rank.rank(), rank.world_size()));
    weight.mutable_grad() = at::full({5}, share);
    all_reduce_gradients({{"weight", weight}}, *rank.communicator());
    rank.observe("gradient", weight.grad());
  });
  expect_mean_over_ranks(run, "gradient", [](int) { return Places{{{"weight", {5}, 0}}, 5, 0}; });
}

MULTI_RANK_TEST(T0_1_all_reduce, all_reduce_gradients_issues_one_all_reduce_per_gradient_in_order) {
  const RankRun run = run_backward(world_size(), kPlainLoss);
  std::string expected = "all_reduce embedding; all_reduce head; ";
  for (const std::string block : {"blocks0", "blocks1", "blocks2"})
    for (const std::string parameter : {".weight", ".bias", ".spare"})
      expected += "all_reduce " + block + parameter + "; ";
  expect_on_all_ranks(run, "calls", expected);
}

MULTI_RANK_TEST(T0_1_all_reduce, the_all_reduces_together_have_as_many_elements_as_the_gradients) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto model = kReplicatedToy();
    kPlainLoss(*model, rank.rank()).backward();
    rank.communicator()->take_log();
    all_reduce_gradients(distinct_parameters(*model), *rank.communicator());
    int64_t numel = 0;
    for (const Call& call : rank.communicator()->take_log())
      numel += call.numel;
    rank.observe("elements of all collectives", numel);
  });
  expect_on_all_ranks(run, "elements of all collectives", toy_bytes(3) / 4);
}

MULTI_RANK_TEST(T0_1_all_reduce, a_parameter_without_a_gradient_on_some_ranks_counts_as_zero) {
  expect_means(run_backward(world_size(), kBlockUnusedOnRank0), kBlockUnusedOnRank0);
}

MULTI_RANK_TEST(T0_1_all_reduce, a_frozen_parameter_is_in_no_all_reduce) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const at::Tensor trained = at::zeros({3}).requires_grad_(true);
    const at::Tensor frozen = at::ones({3});
    trained.mutable_grad() = at::ones({3});
    all_reduce_gradients({{"frozen", frozen}, {"trained", trained}}, *rank.communicator());
    rank.observe("calls", take_calls(*rank.communicator()));
    rank.observe("the frozen parameter has a .grad", frozen.grad().defined());
  });
  expect_on_all_ranks(run, "calls", "all_reduce trained; ");
  expect_on_all_ranks(run, "the frozen parameter has a .grad", false);
}

// A collective takes contiguous tensors. But a gradient, such as that of a transposed product, need
// not be contiguous.
MULTI_RANK_TEST(T0_1_all_reduce, a_gradient_that_is_not_contiguous_is_averaged_too) {
  const auto gradient = [](int rank) {
    return (at::arange(6, at::kFloat).view({2, 3}) * (rank + 1)).t();
  };
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const at::Tensor weight = at::zeros({3, 2}).requires_grad_(true);
    weight.mutable_grad() = gradient(rank.rank());
    all_reduce_gradients({{"weight", weight}}, *rank.communicator());
    rank.observe("gradient", weight.grad().contiguous());
  });
  const RankRun oracle = run_oracle([&](TestRank& rank) {
    std::vector<at::Tensor> gradients;
    for (int r = 0; r < run.world_size(); ++r)
      gradients.push_back(gradient(r).contiguous());
    rank.observe("gradient", sum_as_tree(gradients) / run.world_size());
  });
  expect_as(run, oracle);
}

}  // namespace
}  // namespace fsdp
