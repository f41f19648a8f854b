#include "sharded_toy.h"

namespace fsdp {
namespace {

// A module that uses its own parameter before its block runs and after it.
struct Stage : Module {
  explicit Stage(int64_t seed)
      : scale(register_parameter("scale", at::full({7}, 1.5))),
        block(register_module("block", std::make_shared<ToyBlock>(7, seed))) {}
  torch::Tensor forward(torch::Tensor x) override { return (*block)(x * scale) + scale; }

  at::Tensor scale;  // [7]
  std::shared_ptr<ToyBlock> block;
};

// A module of two stages, with a parameter that is used after each of them.
struct Staged : Module {
  Staged()
      : shift(register_parameter("shift", at::full({7}, 0.25))),
        first(register_module("first", std::make_shared<Stage>(1))),
        second(register_module("second", std::make_shared<Stage>(2))) {}
  torch::Tensor forward(torch::Tensor x) override { return (*second)((*first)(x) + shift) + shift; }

  at::Tensor shift;  // [7]
  std::shared_ptr<Stage> first, second;
};

// A Staged whose modules are units. Forward hooks are registered in the order of the modules; hooks
// that a test adds to a module run after the hooks of the module's unit.
struct ShardedStages {
  explicit ShardedStages(TestRank& rank) {
    add(rank, model, "root", {{"shift", model.shift}});
    for (const auto& [name, stage] :
         {std::pair{"first", model.first}, std::pair{"second", model.second}}) {
      add(rank, *stage, name, {{"scale", stage->scale}});
      ToyBlock& block = *stage->block;
      add(rank, block, std::string(name) + ".block",
          {{"weight", block.weight}, {"bias", block.bias}, {"spare", block.spare}});
    }
  }

  void add(TestRank& rank, Module& module, const std::string& name,
           const std::vector<NamedParameter>& parameters) {
    units.push_back(make_flat_parameter(name, parameters, rank.communicator()));
    register_forward_hooks(module, units.back(), /*reshard_after_forward=*/name != "root");
    module.register_forward_hook([this, name](Module&, const at::Tensor&) {
      seen += "after " + name + ": " + gathered(units) + "| ";
      return at::Tensor();
    });
  }

  Staged model;
  std::vector<std::shared_ptr<FlatParameter>> units;
  std::string seen;
};

at::Tensor stage_input() {
  return at::arange(21, at::kFloat).view({3, 7}) / 21;
}

MULTI_RANK_SUITE(T3_3_nesting);

MULTI_RANK_TEST(T3_3_nesting, an_outer_unit_stays_unsharded_while_inner_units_run) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    ShardedStages sharded(rank);
    rank.observe("output", sharded.model(stage_input()).detach());
    rank.observe("units gathered after each module", sharded.seen);
    rank.observe("calls", take_calls(*rank.communicator()));
  });
  expect_on_all_ranks(run, "units gathered after each module",
                      "after first.block: root first | after first: root | "
                      "after second.block: root second | after second: root | after root: root | ");
  expect_on_all_ranks(run, "calls",
                      "all_gather root; all_gather first; all_gather first.block; "
                      "all_gather second; all_gather second.block; ");
  const RankRun oracle =
      run_oracle([](TestRank& rank) { rank.observe("output", Staged()(stage_input()).detach()); });
  expect_on_all_ranks(run, "output", oracle.at(0, "output"));
}

// The two models have units of equal names. The first model reshards after forward, the second does
// not.
MULTI_RANK_TEST(T3_3_nesting, two_models_with_equal_unit_names_share_no_state_in_forward) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    ShardedToy one(rank, std::make_shared<ToyModel>(2), /*reshard_after_forward=*/true);
    ShardedToy two(rank, other_toy(2), /*reshard_after_forward=*/false);
    const auto output = (*one.model)(toy_tokens(0));
    rank.observe("units of the second model after a forward of the first", two.gathered());
    rank.observe("output of the second model", (*two.model)(toy_tokens(0)).detach());
    rank.observe("units of the first model at the end", one.gathered());
    rank.observe("units of the second model at the end", two.gathered());
    rank.observe("output of the first model", output.detach());
  });
  expect_on_all_ranks(run, "units of the second model after a forward of the first", "");
  expect_on_all_ranks(run, "units of the first model at the end", "root ");
  expect_on_all_ranks(run, "units of the second model at the end", "root blocks0 blocks1 ");
  expect_on_all_ranks(run, "output of the first model", eager_output());
  expect_on_all_ranks(run, "output of the second model", eager_output(/*other=*/true));
}

}  // namespace
}  // namespace fsdp
