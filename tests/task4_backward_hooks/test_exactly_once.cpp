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

// Expects that the units of `expected` are reduced once each, in this order, and that no other unit
// except the root is reduced. (The root is reduced at the end of the pass.)
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

// The expected collectives of a backward pass if the blocks were called in the order `forward`. A
// unit is gathered when the backward of one of its calls begins for the first time. It is reduced
// when the backward of the call that ran first in forward has ended.
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

// With stochastic depth, each rank decides by its own random numbers which blocks it skips.
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

MULTI_RANK_TEST(T4_3_exactly_once, a_frozen_unit_is_resharded_before_backward_of_the_next_begins) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank, 3, /*frozen_block=*/1);
    const auto seen = look_at_arrivals(sharded, [&] { return sharded.gathered(); });
    plain_loss(*sharded.model, rank.rank()).backward();
    rank.observe("units gathered as each block's gradient arrives; blocks1 is frozen", *seen);
  });
  expect_on_all_ranks(run, "units gathered as each block's gradient arrives; blocks1 is frozen",
                      "root blocks2 | root blocks1 | root blocks0 | ");
}

// The output of a call that threw never gets a gradient. Hooks that counted the call would reduce
// the unit only at the end of the pass.
MULTI_RANK_TEST(T4_3_exactly_once, the_reduction_of_a_unit_does_not_wait_for_a_call_that_threw) {
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

MULTI_RANK_TEST(T4_3_exactly_once, reducing_a_unit_does_not_wait_for_calls_of_an_evaluation) {
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

// The weight is also used before its module is called. So one of its gradients arrives after the
// backward of the module's call has ended: in one case while the reduction of its unit is under
// way, in the other case after the hooks have waited for this reduction.
MULTI_RANK_TEST(T4_3_exactly_once, a_gradient_after_its_units_reduction_throws_and_is_named) {
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

}  // namespace
}  // namespace fsdp
