#include "sharded_toy.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T3_4_edge_cases);

MULTI_RANK_TEST(T3_4_edge_cases, without_grad_mode_no_unit_stays_unsharded) {
  for (const bool reshard_after_forward : {true, false}) {
    SCOPED_TRACE(reshard_after_forward ? "with resharding" : "without resharding");
    const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
      ShardedToy sharded(rank, 2, reshard_after_forward);
      at::NoGradGuard no_grad;
      rank.observe("output", (*sharded.model)(toy_tokens(0)));
      rank.observe("units gathered afterwards", sharded.gathered());
    });
    expect_on_all_ranks(run, "units gathered afterwards", "");
    expect_on_all_ranks(run, "output", eager_output());
  }
}

// A forward whose loss is dropped leaves the root unsharded. The evaluation after it must reshard
// the root, because the shards can change before the next forward.
MULTI_RANK_TEST(T3_4_edge_cases, an_evaluation_reshards_the_root_that_a_forward_left_unsharded) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    ShardedToy sharded(rank);
    const auto calls_of_forward = [&](bool recording) {
      const at::AutoGradMode mode(recording);
      (*sharded.model)(toy_tokens(0));
      return take_calls(*rank.communicator());
    };
    calls_of_forward(true);
    rank.observe("calls of an evaluation", calls_of_forward(false));
    rank.observe("units gathered after it", sharded.gathered());
    rank.observe("calls of the next evaluation", calls_of_forward(false));
    rank.observe("calls of the next forward", calls_of_forward(true));
  });
  const std::string blocks = "all_gather blocks0; all_gather blocks1; ";
  expect_on_all_ranks(run, "calls of an evaluation", blocks);
  expect_on_all_ranks(run, "units gathered after it", "");
  expect_on_all_ranks(run, "calls of the next evaluation", "all_gather root; " + blocks);
  expect_on_all_ranks(run, "calls of the next forward", "all_gather root; " + blocks);
}

// A module whose output does not tell a hook whether autograd records operations. forward() returns
// its input, which may require a gradient; if `detach` is true, it returns a tensor that requires
// no gradient, even while autograd records.
struct Odd : Module {
  Odd() : weight(register_parameter("weight", at::ones({7}))) {}
  torch::Tensor forward(torch::Tensor x) override { return detach ? (x * weight).detach() : x; }
  at::Tensor weight;  // [7]
  bool detach{};
};

// A model can return something without a gradient, for example metrics, and keep its loss in a
// member.
MULTI_RANK_TEST(T3_4_edge_cases,
                grad_mode_and_not_the_output_decides_whether_a_unit_stays_unsharded) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Odd odd;
    const std::vector<NamedParameter> own{{"weight", odd.weight}};
    const auto unit = make_flat_parameter("odd", own, rank.communicator());
    register_forward_hooks(odd, unit, /*reshard_after_forward=*/false);
    const auto input = at::ones({7}).requires_grad_(true);
    odd.detach = true;
    odd(input);
    rank.observe("recording, with an output that needs no gradient: the unit stays",
                 unit->state() == UnitState::unsharded);
    odd.detach = false;
    at::NoGradGuard no_grad;
    odd(input);
    rank.observe("not recording, with an output that needs a gradient: the unit stays",
                 unit->state() == UnitState::unsharded);
  });
  expect_on_all_ranks(run, "recording, with an output that needs no gradient: the unit stays",
                      true);
  expect_on_all_ranks(run, "not recording, with an output that needs a gradient: the unit stays",
                      false);
}

// The exception comes from the module, or from a pre-hook. If it comes from a pre-hook, the unit's
// own pre-hook has not run, but its forward hook runs.
MULTI_RANK_TEST(T3_4_edge_cases, after_an_exception_no_unit_stays_unsharded) {
  for (const std::string place : {"blocks1 throws", "a pre-hook before the unit's throws"}) {
    const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
      const auto model = std::make_shared<ToyModel>(2);
      model->blocks[1]->fails = true;
      auto hook = model->blocks[1]->register_forward_pre_hook([&](Module&, const at::Tensor& x) {
        return place == "blocks1 throws" ? x : throw std::runtime_error("no");
      });
      ShardedToy sharded(rank, model);
      rank.observe(place, thrown_by([&] { (*model)(toy_tokens(0)); }));
      rank.observe("units gathered after " + place, sharded.gathered());
      model->blocks[1]->fails = false;
      hook.remove();
      rank.observe("output", (*model)(toy_tokens(0)).detach());
      rank.observe("units gathered after the next forward", sharded.gathered());
    });
    expect_error(run, place, {"std::runtime_error"});
    expect_on_all_ranks(run, "units gathered after " + place, "");
    expect_on_all_ranks(run, "units gathered after the next forward", "root ");
    expect_on_all_ranks(run, "output", eager_output());
  }
}

MULTI_RANK_TEST(T3_4_edge_cases,
                without_reshard_an_exception_reshards_only_units_whose_forward_it_ends) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    ShardedToy sharded(rank, 2, /*reshard_after_forward=*/false);
    sharded.model->blocks[1]->fails = true;
    rank.observe("what forward throws", thrown_by([&] { (*sharded.model)(toy_tokens(0)); }));
    rank.observe("units gathered afterwards", sharded.gathered());
  });
  expect_error(run, "what forward throws", {"std::runtime_error"});
  expect_on_all_ranks(run, "units gathered afterwards", "blocks0 ");
}

MULTI_RANK_TEST(T3_4_edge_cases, a_module_called_twice_is_unsharded_twice) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    ShardedToy sharded(rank);
    sharded.model->order = {0, 1, 0};
    (*sharded.model)(toy_tokens(0));
    rank.observe("calls", take_calls(*rank.communicator()));
    rank.observe("units gathered afterwards", sharded.gathered());
  });
  expect_on_all_ranks(
      run, "calls",
      "all_gather root; all_gather blocks0; all_gather blocks1; all_gather blocks0; ");
  expect_on_all_ranks(run, "units gathered afterwards", "root ");
}

}  // namespace
}  // namespace fsdp
