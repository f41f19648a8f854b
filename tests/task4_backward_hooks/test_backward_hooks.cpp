#include <testing/provenance.h>

#include "sharded_model.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T4_1_pre_backward);

TEST_P(T4_1_pre_backward, units_are_unsharded_in_reverse_order_one_at_a_time) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    const auto loss = plain_loss(*sharded.model, rank.rank());
    rank.communicator()->take_log();
    live_bytes::enter(Phase::backward);
    loss.backward();
    rank.observe("calls", take_calls(*rank.communicator()));
    rank.observe("peak of gathered bytes",
                 live_bytes::peak(Phase::backward)[MemoryClass::gathered]);
    rank.observe(
        "bytes of the root and one unit",
        (sharded.units[0]->layout().padded_numel + sharded.units[1]->layout().padded_numel) * 4);
  });
  expect_on_all_ranks(run, "calls", kBackward);
  for (int r = 0; r < world_size(); ++r)
    expect_on_rank(run, r, "peak of gathered bytes", run.at(r, "bytes of the root and one unit"));
}

TEST_P(T4_1_pre_backward, a_unit_is_unsharded_even_if_its_output_is_changed_in_place) {
  const Loss loss = [](ToyModel& model, int rank) {
    auto x = at::embedding(model.embedding, toy_tokens(rank));
    auto y = (*model.blocks[0])(x);
    y = y.mul_(2);
    return y.sum() * model.head.sum();
  };
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    Sharded sharded(rank);
    // The root's forward is not called: what it does for its parameters is done by hand.
    sharded.units[0]->unshard();
    loss(*sharded.model, rank.rank()).backward();
    sharded.observe_gradients(rank);
  });
  expect_gradients_of_one_process(run, loss);
}

MULTI_RANK_SUITE(T4_2_reduce_scatter);

TEST_P(T4_2_reduce_scatter, gradients_are_the_mean_over_ranks_bit_by_bit) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    plain_loss(*sharded.model, rank.rank()).backward();
    sharded.observe_gradients(rank);
  });
  expect_gradients_of_one_process(run, plain_loss);
}

// A module whose weight gets the gradient that is sent into its output, in each element.
struct Sender : Module {
  Sender() { weight = register_parameter("weight", at::zeros({48})); }
  torch::Tensor forward(torch::Tensor x) override { return x + weight; }
  at::Tensor weight;  // [48]
};

TEST_P(T4_2_reduce_scatter, every_rank_contributes_exactly_once) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sender sender;
    auto unit = std::make_shared<FlatParameter>(
        "sender", std::vector<NamedParameter>{{"weight", sender.weight}}, rank.communicator());
    auto hooks = std::make_shared<BackwardHooks>();
    register_forward_hooks(sender, unit, true);
    hooks->add(sender, unit);
    const auto y = sender(at::zeros({48}).requires_grad_(true));
    const auto share = static_cast<double>(provenance::gradient(rank.rank(), rank.world_size()));
    y.backward(at::full_like(y, share));
    rank.observe("gradient", unit->sharded_gradient(), places_of_shard(*unit));
  });
  expect_mean_over_ranks(run, "gradient");
}

MULTI_RANK_SUITE(T4_3_exactly_once);

const Loss kSpareUnused = [](ToyModel& model, int rank) {
  model.blocks[1]->use_spare = false;
  return plain_loss(model, rank);
};
const Loss kSpareUnusedOnOneRank = [](ToyModel& model, int rank) {
  model.blocks[1]->use_spare = rank != 0;
  return plain_loss(model, rank);
};
const Loss kBlockUsedTwice = [](ToyModel& model, int rank) {
  model.order = {0, 1, 0, 2};
  return plain_loss(model, rank);
};
const Loss kTwoForwards = [](ToyModel& model, int rank) {
  const auto one = plain_loss(model, rank);
  return one + plain_loss(model, rank + 3);
};

void expect_one_reduction_each(int world_size, const Loss& loss, const std::string& expected,
                               int frozen_block = -1, const std::string& or_this = "") {
  const RankRun run = run_ranks(world_size, [&](TestRank& rank) {
    Sharded sharded(rank, 3, frozen_block);
    loss(*sharded.model, rank.rank()).backward();
    rank.observe("units reduced, in order", reductions(take_calls(*rank.communicator())));
    sharded.observe_gradients(rank);
    rank.observe("units still gathered", sharded.gathered());
  });
  const std::string order = "units reduced, in order";
  expect_on_all_ranks(run, order, run.at(0, order) == or_this ? or_this : expected);
  expect_on_all_ranks(run, "units still gathered", "");
  if (frozen_block < 0) expect_gradients_of_one_process(run, loss);
}

TEST_P(T4_3_exactly_once, a_unit_with_an_unused_parameter_is_reduced_once) {
  expect_one_reduction_each(world_size(), kSpareUnused, "blocks2; blocks1; blocks0; root; ");
}

TEST_P(T4_3_exactly_once, a_unit_with_a_parameter_unused_on_one_rank_is_reduced_once) {
  expect_one_reduction_each(world_size(), kSpareUnusedOnOneRank,
                            "blocks2; blocks1; blocks0; root; ");
}

TEST_P(T4_3_exactly_once, an_unused_unit_is_reduced_once) {
  expect_one_reduction_each(world_size(), kBlockUnused, "blocks2; blocks0; blocks1; root; ");
}

TEST_P(T4_3_exactly_once, a_unit_used_twice_is_reduced_once) {
  expect_one_reduction_each(world_size(), kBlockUsedTwice, "blocks2; blocks1; blocks0; root; ");
}

TEST_P(T4_3_exactly_once, two_forwards_before_one_backward_reduce_each_unit_once) {
  expect_one_reduction_each(world_size(), kTwoForwards, "blocks2; blocks1; blocks0; root; ");
}

TEST_P(T4_3_exactly_once, a_unit_with_an_output_outside_the_loss_is_reduced_once) {
  // Whether a call that can no longer come back is waited for until the end of the pass is open.
  expect_one_reduction_each(world_size(), kOutputDropped, "blocks2; blocks0; blocks1; root; ", -1,
                            "blocks2; blocks1; blocks0; root; ");
}

TEST_P(T4_3_exactly_once, a_frozen_unit_is_not_reduced) {
  expect_one_reduction_each(world_size(), plain_loss, "blocks2; blocks0; root; ", 1);
}

// The constant needs no gradient, so this call of the block ends in no full backward hook; it comes
// first, so that its gradient comes last, after the other call's hook.
const Loss kOneInputNeedsNoGradient = [](ToyModel& model, int rank) {
  const auto on_constant = (*model.blocks[1])(at::ones({1, 7}));
  return plain_loss(model, rank) + on_constant.sum();
};

TEST_P(T4_3_exactly_once, a_unit_with_an_input_without_gradient_is_reduced_once) {
  expect_one_reduction_each(world_size(), kOneInputNeedsNoGradient,
                            "blocks2; blocks0; blocks1; root; ");
}

// Where backward runs twice over one graph, both passes see the same calls come back.
TEST_P(T4_3_exactly_once, a_second_pass_over_a_retained_graph_reduces_each_unit_once) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    const auto loss = kBlockUsedTwice(*sharded.model, rank.rank());
    loss.backward({}, /*retain_graph=*/true);
    rank.communicator()->take_log();
    live_bytes::enter(Phase::backward);
    loss.backward();
    rank.observe("units reduced in the second pass", reductions(take_calls(*rank.communicator())));
    rank.observe("units gathered at the peak of the second pass",
                 live_bytes::peak(Phase::backward)[MemoryClass::gathered] /
                     (sharded.units[1]->layout().padded_numel * 4));
    sharded.observe_gradients(rank);
  });
  expect_on_all_ranks(run, "units reduced in the second pass", "blocks2; blocks1; blocks0; root; ");
  // The root and blocks0, from its second use to its first, and the block between them.
  expect_on_all_ranks(run, "units gathered at the peak of the second pass", 3);
  expect_gradients_of_one_process(
      run, [](ToyModel& model, int rank) { return kBlockUsedTwice(model, rank) * 2; });
}

// The weight is also used before its module is called, so its gradient comes after the module's.
TEST_P(T4_3_exactly_once, a_gradient_after_the_reduction_is_an_error_that_names_it) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    sharded.units[1]->unshard();
    const auto early = sharded.model->blocks[0]->weight.sum();
    std::string error = "none";
    try {
      (plain_loss(*sharded.model, rank.rank()) + early).backward();
    } catch (const std::logic_error& thrown) {
      error = thrown.what();
    }
    rank.observe("error", error);
    rank.observe("units reduced before it", reductions(take_calls(*rank.communicator())));
  });
  expect_on_all_ranks(run, "units reduced before it", "blocks2; blocks1; blocks0; ");
  for (int r = 0; r < world_size(); ++r) {
    const auto error = run.at(r, "error").get<std::string>();
    SCOPED_TRACE("rank " + std::to_string(r));
    expect_error_says(error, "unit blocks0");
    expect_error_says(error, "weight");
  }
}

}  // namespace
}  // namespace fsdp
