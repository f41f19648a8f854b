#include "sharded_model.h"

// Tests of two sharded models in one program, whose BackwardHooks share no state.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(T4_4_two_models);

// When the pass of the first model breaks off, blocks2 is reduced and the reduction of blocks1 is
// under way. The second model must not wait for this reduction, because its result would then stay
// in the first model.
MULTI_RANK_TEST(T4_4_two_models,
                a_pass_leaves_alone_what_a_failed_pass_of_the_other_model_was_reducing) {
  const std::string kLeft =
      "units of the first model that have a gradient after its failed pass, a pass of the second "
      "model, and an evaluation of the first";
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    Sharded first(rank, other_toy(3)), second(rank);
    std::string ends;
    first.hooks->on_end([&] { ends += "first "; });
    second.hooks->on_end([&] { ends += "second "; });
    break_off_at("blocks0.weight", first, rank);
    rank.observe("a pass of the second model begins", true);
    plain_loss(*second.model, rank.rank()).backward();
    {
      const at::NoGradGuard no_grad;
      (*first.model)(toy_tokens(0));
    }
    rank.observe(kLeft, first.reduced());
    rank.observe("models whose on_end() was called, in order", ends);
    second.observe_gradients(rank);
  });
  expect_broken_off(run);
  expect_on_all_ranks(run, kLeft, "blocks2 ");
  expect_on_all_ranks(run, "models whose on_end() was called, in order", "second first ");
  expect_gradients_of_one_process(run, plain_loss);
}

// The second model is evaluated inside the pass of the first model. This is the first thing that
// the hooks of the second model notice after their failed pass. They must drop only gradients of
// the second model.
MULTI_RANK_TEST(T4_4_two_models, after_a_failed_backward_a_model_drops_only_its_own_gradients) {
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    Sharded first(rank), second(rank, other_toy(3));
    break_off_at("blocks1.weight", second, rank);
    int evaluations = 0;
    first.model->blocks[1]->register_full_backward_pre_hook([&](Module&) {
      rank.observe(
          "the reduction of blocks2 of the first model is under way; the second model is "
          "evaluated for the first time since its failed pass",
          true);
      const at::NoGradGuard no_grad;
      (*second.model)(toy_tokens(0));
      ++evaluations;
    });
    plain_loss(*first.model, rank.rank()).backward();
    rank.observe("evaluations inside the pass", evaluations);
    rank.observe("units of the first model that have a gradient", first.reduced());
    first.observe_gradients(rank);
  });
  expect_broken_off(run);
  expect_on_all_ranks(run, "evaluations inside the pass", 1);
  expect_on_all_ranks(run, "units of the first model that have a gradient",
                      "root blocks0 blocks1 blocks2 ");
  expect_gradients_of_one_process(run, plain_loss);
}

// A hook of the first model runs a whole backward pass of the second model. After that pass, the
// reduction of blocks2 of the first model must still be pending, so that the computation of blocks1
// can hide it.
MULTI_RANK_TEST(T4_4_two_models,
                a_pass_inside_a_pass_of_the_other_model_waits_only_for_its_own_reductions) {
  const std::string kReduced =
      "units of the first model whose reduction was waited for, before | after the pass of the "
      "second model";
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    Sharded first(rank), second(rank, other_toy(3));
    std::string reduced;
    first.model->blocks[0]->register_full_backward_pre_hook([&](Module&) {
      reduced += first.reduced() + "| ";
      {
        const at::AutoGradMode with_gradients(true);
        plain_loss(*second.model, rank.rank()).backward();
      }
      reduced += first.reduced();
    });
    plain_loss(*first.model, rank.rank()).backward();
    rank.observe(kReduced, reduced);
    rank.observe("units of the second model that have a gradient", second.reduced());
    first.observe_gradients(rank);
  });
  expect_on_all_ranks(run, kReduced, "blocks2 | blocks2 ");
  expect_on_all_ranks(run, "units of the second model that have a gradient",
                      "root blocks0 blocks1 blocks2 ");
  expect_gradients_of_one_process(run, plain_loss);
}

}  // namespace
}  // namespace fsdp
