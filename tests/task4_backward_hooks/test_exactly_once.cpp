#include "sharded_model.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T4_3_exactly_once);

const Loss kSpareUnused = [](ToyModel& model, int rank) {
  model.blocks[1]->use_spare = false;
  return plain_loss(model, rank);
};
const Loss kSpareUnusedOnOneRank = [](ToyModel& model, int rank) {
  model.blocks[1]->use_spare = rank != 0;
  return plain_loss(model, rank);
};
const Loss kTwoForwards = [](ToyModel& model, int rank) {
  const auto one = plain_loss(model, rank);
  return one + plain_loss(model, rank + 3);
};

// Each unit but the root, which is reduced at the end of the pass.
void expect_one_reduction_each(int world_size, const Loss& loss, const std::string& expected,
                               int frozen_block = -1) {
  const RankRun run = run_ranks(world_size, [&](TestRank& rank) {
    Sharded sharded(rank, 3, frozen_block);
    loss(*sharded.model, rank.rank()).backward();
    rank.observe("units reduced, in order",
                 without_root(reductions(take_calls(*rank.communicator()))));
    sharded.observe_gradients_of_blocks(rank);
  });
  expect_on_all_ranks(run, "units reduced, in order", expected);
  if (frozen_block < 0) expect_gradients_of_blocks(run, loss);
}

MULTI_RANK_TEST(T4_3_exactly_once, a_unit_with_an_unused_parameter_is_reduced_once) {
  expect_one_reduction_each(world_size(), kSpareUnused, "blocks2; blocks1; blocks0; ");
}

MULTI_RANK_TEST(T4_3_exactly_once, a_unit_with_a_parameter_unused_on_one_rank_is_reduced_once) {
  expect_one_reduction_each(world_size(), kSpareUnusedOnOneRank, "blocks2; blocks1; blocks0; ");
}

MULTI_RANK_TEST(T4_3_exactly_once, a_unit_used_twice_is_reduced_once) {
  expect_one_reduction_each(world_size(), kBlockUsedTwice, "blocks2; blocks1; blocks0; ");
}

MULTI_RANK_TEST(T4_3_exactly_once, two_forwards_before_one_backward_reduce_each_unit_once) {
  expect_one_reduction_each(world_size(), kTwoForwards, "blocks2; blocks1; blocks0; ");
}

MULTI_RANK_TEST(T4_3_exactly_once, a_frozen_unit_is_not_reduced) {
  expect_one_reduction_each(world_size(), plain_loss, "blocks2; blocks0; ", 1);
}

// The collectives of a backward pass in which the blocks were called in some order. A unit is
// gathered when it first comes back, and reduced when its first call has come back.
struct OrderOfCalls {
  std::vector<int> forward;
  std::string backward;
};

const std::vector<OrderOfCalls> kOrders{
    {{2, 1, 0},
     "all_gather blocks0; reduce_scatter blocks0; all_gather blocks1; reduce_scatter blocks1; "
     "all_gather blocks2; reduce_scatter blocks2; "},
    {{0, 0, 1, 2},
     "all_gather blocks2; reduce_scatter blocks2; all_gather blocks1; reduce_scatter blocks1; "
     "all_gather blocks0; reduce_scatter blocks0; "},
    {{0, 1, 2, 2, 2},
     "all_gather blocks2; reduce_scatter blocks2; all_gather blocks1; reduce_scatter blocks1; "
     "all_gather blocks0; reduce_scatter blocks0; "},
    {{0, 1, 2, 0, 1, 2},
     "all_gather blocks2; all_gather blocks1; all_gather blocks0; reduce_scatter blocks2; "
     "reduce_scatter blocks1; reduce_scatter blocks0; "},
    {{1, 0, 1, 2},
     "all_gather blocks2; reduce_scatter blocks2; all_gather blocks1; all_gather blocks0; "
     "reduce_scatter blocks0; reduce_scatter blocks1; "}};

MULTI_RANK_TEST(T4_3_exactly_once, units_used_in_any_order_are_reduced_once) {
  for (const auto& order : kOrders) {
    SCOPED_TRACE(testing::Message()
                 << "blocks are called in the order " << testing::PrintToString(order.forward));
    const Loss loss = [&](ToyModel& model, int rank) {
      model.order = order.forward;
      return plain_loss(model, rank);
    };
    const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
      Sharded sharded(rank);
      const auto value = loss(*sharded.model, rank.rank());
      take_calls(*rank.communicator());
      value.backward();
      rank.observe("calls", without_root(take_calls(*rank.communicator())));
      sharded.observe_gradients_of_blocks(rank);
    });
    expect_on_all_ranks(run, "calls", order.backward);
    expect_gradients_of_blocks(run, loss);
  }
}

// A block that a rank may skip: it returns its input, and its parameters get no gradient.
struct SkippedBlock : ToyBlock {
  using ToyBlock::ToyBlock;
  torch::Tensor forward(torch::Tensor x) override { return skip ? x : ToyBlock::forward(x); }
  bool skip{};
};

// A rank decides by its own random numbers which blocks it skips (stochastic depth).
MULTI_RANK_TEST(T4_3_exactly_once, a_unit_that_one_rank_skips_is_reduced_once) {
  const MakeToy make = [] {
    auto model = toy_model(3);
    model->blocks[1] = std::make_shared<SkippedBlock>(7, 101);
    return model;
  };
  const Loss loss = [](ToyModel& model, int rank) {
    static_cast<SkippedBlock&>(*model.blocks[1]).skip = rank == 0;
    return plain_loss(model, rank);
  };
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    Sharded sharded(rank, make());
    const auto value = loss(*sharded.model, rank.rank());
    take_calls(*rank.communicator());
    value.backward();
    rank.observe("calls", without_root(take_calls(*rank.communicator())));
    sharded.observe_gradients_of_blocks(rank);
  });
  expect_on_all_ranks(run, "calls", without_root(kBackward));
  expect_gradients_of_blocks(run, loss, make);
}

MULTI_RANK_TEST(T4_3_exactly_once, a_frozen_unit_is_resharded_before_the_next_comes_back) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank, 3, /*frozen_block=*/1);
    const auto seen = look_at_arrivals(sharded, [&] { return sharded.gathered(); });
    plain_loss(*sharded.model, rank.rank()).backward();
    rank.observe("units gathered as each block's gradient arrives; blocks1 is frozen", *seen);
  });
  expect_on_all_ranks(run, "units gathered as each block's gradient arrives; blocks1 is frozen",
                      "root blocks2 | root blocks1 | root blocks0 | ");
}

// A call that threw never comes back: who counts it waits for it until the end of the pass.
MULTI_RANK_TEST(T4_3_exactly_once, a_call_that_threw_is_not_waited_for) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    sharded.model->blocks[1]->fails = true;
    rank.observe("what forward throws", thrown_by([&] {
                   (*sharded.model->blocks[1])(at::ones({1, 7}));
                 }));
    sharded.model->blocks[1]->fails = false;
    const auto loss = plain_loss(*sharded.model, rank.rank());
    take_calls(*rank.communicator());
    loss.backward();
    rank.observe("calls", without_root(take_calls(*rank.communicator())));
    sharded.observe_gradients_of_blocks(rank);
  });
  expect_error(run, "what forward throws", {"std::runtime_error"});
  expect_on_all_ranks(run, "calls", without_root(kBackward));
  expect_gradients_of_blocks(run, plain_loss);
}

MULTI_RANK_TEST(T4_3_exactly_once, the_calls_of_an_evaluation_are_not_waited_for) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    {
      at::NoGradGuard no_grad;
      (*sharded.model)(toy_tokens(0));
    }
    const auto loss = plain_loss(*sharded.model, rank.rank());
    take_calls(*rank.communicator());
    loss.backward();
    rank.observe("calls", without_root(take_calls(*rank.communicator())));
  });
  expect_on_all_ranks(run, "calls", without_root(kBackward));
}

// The weight is also used before its module is called, so its gradient comes after the module's:
// while its unit's reduction is under way, and when that has been waited for.
MULTI_RANK_TEST(T4_3_exactly_once, a_gradient_after_the_reduction_is_an_error_that_names_it) {
  for (const size_t block : {size_t{0}, size_t{2}}) {
    const std::string name = "blocks" + std::to_string(block), late = name + "'s comes late: ";
    const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
      Sharded sharded(rank);
      sharded.units[block + 1]->unshard();
      const auto early = sharded.model->blocks[block]->weight.sum();
      const auto loss = plain_loss(*sharded.model, rank.rank()) + early;
      rank.observe(late + "what backward throws", thrown_by([&] { loss.backward(); }));
      rank.observe("units reduced before it", reductions(take_calls(*rank.communicator())));
    });
    expect_on_all_ranks(run, "units reduced before it", "blocks2; blocks1; blocks0; ");
    expect_error(run, late + "what backward throws", {"std::logic_error", name, "weight"});
  }
}

MULTI_RANK_SUITE(T4_4_remaining);

// Each unit once, the root too: those that give no sign at the end of the pass.
void expect_reduced_by_the_end(int world_size, const Loss& loss, const std::string& expected,
                               const std::string& or_this = "") {
  const RankRun run = run_ranks(world_size, [&](TestRank& rank) {
    Sharded sharded(rank);
    loss(*sharded.model, rank.rank()).backward();
    rank.observe("units reduced, in order", reductions(take_calls(*rank.communicator())));
    sharded.observe_gradients(rank);
    rank.observe("units still gathered", sharded.gathered());
  });
  const std::string order = "units reduced, in order";
  expect_on_all_ranks(run, order, run.at(0, order) == or_this ? or_this : expected);
  expect_on_all_ranks(run, "units still gathered", "");
  expect_gradients_of_one_process(run, loss);
}

MULTI_RANK_TEST(T4_4_remaining, an_unused_unit_is_reduced_once) {
  expect_reduced_by_the_end(world_size(), kBlockUnused, "blocks2; blocks0; blocks1; root; ");
}

MULTI_RANK_TEST(T4_4_remaining, a_unit_with_an_output_outside_the_loss_is_reduced_once) {
  // Whether a call that can no longer come back is waited for until the end of the pass is open.
  expect_reduced_by_the_end(world_size(), kOutputDropped, "blocks2; blocks0; blocks1; root; ",
                            "blocks2; blocks1; blocks0; root; ");
}

// The constant needs no gradient, so this call of the block ends in no full backward hook; it comes
// first, so that its gradient comes last, after the other call's hook.
const Loss kOneInputNeedsNoGradient = [](ToyModel& model, int rank) {
  const auto on_constant = (*model.blocks[1])(at::ones({1, 7}));
  return plain_loss(model, rank) + on_constant.sum();
};

MULTI_RANK_TEST(T4_4_remaining, a_unit_with_an_input_without_gradient_is_reduced_once) {
  expect_reduced_by_the_end(world_size(), kOneInputNeedsNoGradient,
                            "blocks2; blocks0; blocks1; root; ");
}

MULTI_RANK_TEST(T4_4_remaining, a_second_pass_over_a_new_forward_is_like_the_first) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    int ends = 0;
    sharded.hooks->on_end([&] { ++ends; });
    plain_loss(*sharded.model, rank.rank()).backward();
    const auto loss = plain_loss(*sharded.model, rank.rank());
    take_calls(*rank.communicator());
    rank.observe("the second pass begins, over a new forward that called each block once", true);
    loss.backward();
    rank.observe("calls of the second pass", take_calls(*rank.communicator()));
    rank.observe("calls of on_end() in two passes", ends);
  });
  expect_on_all_ranks(run, "calls of on_end() in two passes", 2);
  expect_on_all_ranks(run, "calls of the second pass", kBackward);
}

// Where backward runs several times over one graph, all passes see the same calls come back.
MULTI_RANK_TEST(T4_4_remaining, a_second_pass_over_a_retained_graph_reduces_each_unit_once) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    const auto seen = look_at_arrivals(sharded, [&] { return sharded.gathered(); });
    const auto loss = kBlockUsedTwice(*sharded.model, rank.rank());
    loss.backward({}, /*retain_graph=*/true);
    seen->clear();
    for (const std::string pass : {"second", "third"}) {
      rank.communicator()->take_log();
      rank.observe("the " + pass + " pass begins; both calls of blocks0 come back again", true);
      loss.backward({}, /*retain_graph=*/pass == "second");
      rank.observe("units reduced in the " + pass + " pass",
                   reductions(take_calls(*rank.communicator())));
      rank.observe("units gathered as each block's gradient arrives in the " + pass + " pass",
                   std::exchange(*seen, ""));
    }
    sharded.observe_gradients(rank);
  });
  for (const std::string pass : {"second", "third"}) {
    expect_on_all_ranks(run, "units reduced in the " + pass + " pass",
                        "blocks2; blocks1; blocks0; root; ");
    // blocks0 stays from its second use to its first.
    expect_on_all_ranks(run,
                        "units gathered as each block's gradient arrives in the " + pass + " pass",
                        "root blocks2 | root blocks0 | root blocks0 blocks1 | root blocks0 | ");
  }
  // The first two add up exactly to twice the gradient; the third rounds like twice plus once.
  const auto expected = run_oracle([&](TestRank& rank) {
    const auto model = toy_model(3);
    auto means =
        mean_gradients(*model, run.world_size(), [&](int r) { return kBlockUsedTwice(*model, r); });
    for (auto& unit : means) {
      for (auto& mean : unit)
        mean = mean * 2 + mean;
    }
    observe_means(rank, *model, means, run.world_size());
  });
  expect_gradients(run, expected);
}

// The calls of a graph that is kept come back beside those of the next forward.
MULTI_RANK_TEST(T4_4_remaining, a_retained_graph_and_a_new_one_in_one_loss_reduce_a_unit_once) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    const auto first = plain_loss(*sharded.model, rank.rank());
    first.backward({}, /*retain_graph=*/true);
    sharded.drop_gradients();
    const auto second = plain_loss(*sharded.model, rank.rank());
    rank.communicator()->take_log();
    rank.observe("the second pass begins, over both graphs", true);
    (first + second).backward();
    rank.observe("units reduced in the second pass", reductions(take_calls(*rank.communicator())));
    sharded.observe_gradients(rank);
  });
  expect_on_all_ranks(run, "units reduced in the second pass", "blocks2; blocks1; blocks0; root; ");
  expect_gradients_of_one_process(
      run, [](ToyModel& model, int rank) { return plain_loss(model, rank) * 2; });
}

}  // namespace
}  // namespace fsdp
