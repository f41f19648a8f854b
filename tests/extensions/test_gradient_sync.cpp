#include <sharded_optimizer.h>

#include <task4_backward_hooks/sharded_model.h>

namespace fsdp {
namespace {

MULTI_RANK_SUITE(GradientSync);

MULTI_RANK_TEST(GradientSync, the_step_of_the_optimizer_throws_if_gradients_were_not_reduced) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    const auto optimizer = make_sharded_optimizer(sharded.units, {{"", {}}}, rank.communicator());
    sharded.hooks->set_requires_gradient_sync(false);
    plain_loss(*sharded.model, rank.rank()).backward();
    rank.observe("what step() throws", thrown_by([&] { optimizer->step(); }));
  });
  expect_error(run, "what step() throws", {"std::logic_error", "root"});
}

// Runs forward and returns the loss for backward pass number `pass`. Each rank has a batch of its
// own in each pass.
at::Tensor loss_in(ToyModel& model, int rank, int pass) {
  return model(toy_tokens(rank + 10 * pass)).to(at::kFloat).square().mean();
}

// Returns the expected gradients by unit and parameter: each rank adds the gradients of its
// backward passes in policy.accumulate_dtype(), the sums of the ranks are added as a tree, and the
// total is divided once by the number of ranks.
std::vector<std::vector<at::Tensor>> expected_means(const MixedPrecisionPolicy& policy, int ranks,
                                                    int passes) {
  const auto model = toy_model(3);
  model->to(policy.param_dtype);
  std::vector<std::vector<std::vector<at::Tensor>>> sent;
  for (int rank = 0; rank < ranks; ++rank) {
    for (int pass = 0; pass < passes; ++pass) {
      loss_in(*model, rank, pass).backward();
      size_t u = 0;
      for (const auto& unit : toy_units(*model)) {
        if (sent.size() <= u) sent.emplace_back(unit.parameters.size());
        for (size_t i = 0; i < unit.parameters.size(); ++i) {
          auto gradient = std::exchange(unit.parameters[i].tensor.mutable_grad(), {});
          if (!gradient.defined()) gradient = at::zeros_like(unit.parameters[i].tensor);
          gradient = gradient.to(policy.accumulate_dtype());
          if (pass == 0) {
            sent[u][i].push_back(gradient);
          } else {
            sent[u][i].back().add_(gradient);
          }
        }
        ++u;
      }
    }
  }
  std::vector<std::vector<at::Tensor>> means;
  for (auto& unit : sent) {
    means.emplace_back();
    for (auto& parameter : unit) {
      for (at::Tensor& sum : parameter)
        sum = sum.to(policy.reduce_dtype).to(at::kFloat);
      means.back().push_back(sum_as_tree(parameter) / ranks);
    }
  }
  return means;
}

MULTI_RANK_TEST(
    GradientSync,
    without_gradient_sync_gradients_add_up_in_fp32_if_param_dtype_and_reduce_dtype_differ) {
  std::vector<MixedPrecisionPolicy> policies;
  for (const auto param_dtype : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const auto reduce_dtype : {at::kFloat, at::kBFloat16, at::kHalf})
      policies.push_back({param_dtype, reduce_dtype});
  for (const bool sync_in_last : {true, false}) {
    for (const MixedPrecisionPolicy& policy : policies) {
      SCOPED_TRACE(std::string(dtype_name(policy.param_dtype)) + ", reduced in " +
                   dtype_name(policy.reduce_dtype));
      const RankRun expected = run_oracle([&](TestRank& rank) {
        observe_means(rank, *toy_model(3), expected_means(policy, world_size(), 3), world_size());
      });
      const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
        Sharded sharded(rank);
        for (const auto& unit : sharded.units)
          unit->set_mixed_precision(policy);
        for (int pass = 0; pass < 3; ++pass) {
          sharded.hooks->set_requires_gradient_sync(sync_in_last && pass == 2);
          loss_in(*sharded.model, rank.rank(), pass).backward();
        }
        if (!sync_in_last) sharded.hooks->sync_gradients();
        sharded.observe_gradients(rank);
      });
      expect_gradients(run, expected);
    }
  }
}

// Without gradient sync, a rank holds unsharded gradients until sync_gradients() reduces them.
// Measures how many bytes an element of these gradients takes.
MULTI_RANK_TEST(
    GradientSync,
    gradients_that_wait_for_reduction_take_the_bytes_of_the_dtype_in_which_they_add_up) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    for (const auto reduce_dtype : {at::kBFloat16, at::kFloat}) {
      Sharded sharded(rank);
      int64_t numel = 0;
      for (const auto& unit : sharded.units) {
        unit->set_mixed_precision({at::kBFloat16, reduce_dtype});
        for (const auto& parameter : unit->parameters())
          numel += parameter.tensor.numel();
      }
      sharded.hooks->set_requires_gradient_sync(false);
      for (int pass = 0; pass < 2; ++pass) {
        loss_in(*sharded.model, rank.rank(), pass).backward();
        rank.observe(std::string("bytes of an element, ") + c10::toString(reduce_dtype) +
                         ", pass " + std::to_string(pass),
                     live_bytes::now()[MemoryClass::gradients] / numel);
      }
      sharded.hooks->sync_gradients();
      rank.communicator()->wait_for_readers();
      rank.observe(std::string("bytes at the end, ") + c10::toString(reduce_dtype),
                   live_bytes::now()[MemoryClass::gradients]);
    }
  });
  for (const std::string pass : {"0", "1"}) {
    expect_on_all_ranks(run, "bytes of an element, BFloat16, pass " + pass, 2);
    expect_on_all_ranks(run, "bytes of an element, Float, pass " + pass, 4);
  }
  expect_on_all_ranks(run, "bytes at the end, BFloat16", 0);
  expect_on_all_ranks(run, "bytes at the end, Float", 0);
}

}  // namespace
}  // namespace fsdp
