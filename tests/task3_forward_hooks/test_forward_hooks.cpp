#include "sharded_toy.h"

namespace fsdp {
namespace {

// A module with one unit. The module remembers its last input and output.
struct Scaled : Module {
  explicit Scaled(TestRank& rank) : scale(register_parameter("scale", at::ones({7}))) {
    register_forward_hooks(
        *this,
        make_flat_parameter("scaled", std::vector<NamedParameter>{{"scale", scale}},
                            rank.communicator()),
        /*reshard_after_forward=*/true);
  }
  torch::Tensor forward(torch::Tensor x) override {
    input = x;
    return output = x * scale;
  }
  at::Tensor scale;          // [7]
  at::Tensor input, output;  // input and output of the last forward()
};

// A module with one unit, which may contain other Watched modules. It uses no parameter, and notes
// the state of its unit at the beginning of its forward and after each call of a module inside it.
struct Watched : Module {
  explicit Watched(TestRank& rank, std::vector<std::shared_ptr<Watched>> modules = {},
                   bool frozen = false)
      : weight(register_parameter("weight", at::ones({7}), !frozen)), inside(std::move(modules)) {
    for (size_t i = 0; i < inside.size(); ++i)
      register_module("inside" + std::to_string(i), inside[i]);
    unit = make_flat_parameter("watched", std::vector<NamedParameter>{{"weight", weight}},
                               rank.communicator());
    register_forward_hooks(*this, unit, /*reshard_after_forward=*/true);
  }
  torch::Tensor forward(torch::Tensor x) override {
    note();
    for (const auto& module : inside) {
      x = (*module)(x);
      note();
    }
    return x;
  }
  void note() {
    const bool gathering = unit->state() == UnitState::gathering;
    const bool sharded = unit->state() == UnitState::sharded;
    seen += sharded ? "sharded " : gathering ? "gathering " : "unsharded ";
  }

  at::Tensor weight;  // [7]
  std::vector<std::shared_ptr<Watched>> inside;
  std::shared_ptr<FlatParameter> unit;
  std::string seen;
};

MULTI_RANK_SUITE(T3_1_pre_forward);

MULTI_RANK_TEST(T3_1_pre_forward, a_unit_is_unsharded_before_its_module_runs) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto observe = [&](const std::string& what, Watched&& module) {
      module(at::ones({7}));
      rank.observe("as the module of " + what + " begins, the unit is", module.seen);
    };
    observe("a unit", Watched(rank));
    observe("a frozen unit", Watched(rank, {}, /*frozen=*/true));
    const at::NoGradGuard no_grad;
    observe("a unit, without grad mode,", Watched(rank));
  });
  for (const std::string what : {"a unit", "a frozen unit", "a unit, without grad mode,"})
    expect_on_all_ranks(run, "as the module of " + what + " begins, the unit is", "unsharded ");
}

MULTI_RANK_TEST(T3_1_pre_forward, a_unit_stays_unsharded_until_its_module_returns) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Watched outer(rank, {std::make_shared<Watched>(rank), std::make_shared<Watched>(rank)});
    outer(at::ones({7}));
    rank.observe("the unit as its module begins, and after each of two units inside it",
                 outer.seen);
  });
  expect_on_all_ranks(run, "the unit as its module begins, and after each of two units inside it",
                      "unsharded unsharded unsharded ");
}

MULTI_RANK_TEST(T3_1_pre_forward, each_unit_issues_one_all_gather_in_order) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    auto model = std::make_shared<ToyModel>(2);
    for (auto& parameter : model->blocks[0]->parameters())
      parameter.set_requires_grad(false);  // a frozen unit must be gathered for forward too
    ShardedToy sharded(rank, model);
    rank.observe("calls before the first forward", take_calls(*rank.communicator()));
    (*sharded.model)(toy_tokens(0));
    rank.observe("calls", take_calls(*rank.communicator()));
  });
  expect_on_all_ranks(run, "calls before the first forward", "");
  expect_on_all_ranks(run, "calls", "all_gather root; all_gather blocks0; all_gather blocks1; ");
}

// For example, the prefetch of task 6 can issue a unit's all-gather before its module is called.
MULTI_RANK_TEST(T3_1_pre_forward, forward_waits_for_a_units_all_gather_that_was_issued_ahead) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    ShardedToy sharded(rank);
    for (const auto& unit : sharded.units)
      unit->unshard_async();
    rank.observe("output", (*sharded.model)(toy_tokens(0)).detach());
    rank.observe("calls", take_calls(*rank.communicator()));
  });
  expect_on_all_ranks(run, "calls", "all_gather root; all_gather blocks0; all_gather blocks1; ");
  expect_on_all_ranks(run, "output", eager_output());
}

// Backward, the optimizer and an export also unshard and reshard units. So the pre-forward hook
// must look at the state of its unit at each call.
MULTI_RANK_TEST(T3_1_pre_forward, each_forward_gathers_exactly_the_units_that_are_sharded) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    ShardedToy sharded(rank);
    const auto forward_over = [&](const std::vector<UnitState>& states) {
      for (size_t i = 0; i < states.size(); ++i) {
        if (states[i] == UnitState::sharded) {
          sharded.units[i]->reshard();
        } else {
          sharded.units[i]->unshard();
        }
      }
      take_calls(*rank.communicator());
      const auto output = (*sharded.model)(toy_tokens(0)).detach();
      return std::pair(take_calls(*rank.communicator()), output);
    };
    constexpr auto sharded_now = UnitState::sharded, unsharded = UnitState::unsharded;
    forward_over({sharded_now, sharded_now, sharded_now});
    auto [calls, output] = forward_over({unsharded, sharded_now, unsharded});
    rank.observe("calls where root and blocks1 are unsharded", calls);
    std::tie(calls, output) = forward_over({sharded_now, unsharded, sharded_now});
    rank.observe("calls where blocks0 is unsharded", calls);
    rank.observe("output", output);
  });
  expect_on_all_ranks(run, "calls where root and blocks1 are unsharded", "all_gather blocks0; ");
  expect_on_all_ranks(run, "calls where blocks0 is unsharded",
                      "all_gather root; all_gather blocks1; ");
  expect_on_all_ranks(run, "output", eager_output());
}

MULTI_RANK_TEST(T3_1_pre_forward, a_unit_with_forward_hooks_lives_as_long_as_its_module) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.communicator();
    const int64_t before = live_bytes::now().total;
    auto model = std::make_shared<ToyModel>(2);
    std::vector<std::weak_ptr<FlatParameter>> units;
    {
      const ShardedToy sharded(rank, model);
      units.assign(sharded.units.begin(), sharded.units.end());
    }
    const auto alive = [&] {
      return std::count_if(units.begin(), units.end(), [](auto& unit) { return !unit.expired(); });
    };
    rank.observe("units while the model is there", alive());
    if (alive() == 3) (*model)(toy_tokens(0));
    model.reset();
    rank.observe("units when the model is gone", alive());
    // The communicator keeps the tensors alive that other ranks read in place. wait_for_readers()
    // waits until the other ranks have read them, and frees them.
    rank.communicator()->wait_for_readers();
    rank.observe("bytes when the model is gone", live_bytes::now().total - before);
  });
  expect_on_all_ranks(run, "units while the model is there", 3);
  expect_on_all_ranks(run, "units when the model is gone", 0);
  expect_on_all_ranks(run, "bytes when the model is gone", 0);
}

MULTI_RANK_TEST(T3_1_pre_forward, without_grad_mode_a_unit_is_unsharded_too) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const at::NoGradGuard no_grad;
    ShardedToy sharded(rank);
    rank.observe("output", (*sharded.model)(toy_tokens(0)));
    rank.observe("calls", take_calls(*rank.communicator()));
  });
  expect_on_all_ranks(run, "calls", "all_gather root; all_gather blocks0; all_gather blocks1; ");
  expect_on_all_ranks(run, "output", eager_output());
}

MULTI_RANK_TEST(T3_1_pre_forward, forward_hooks_pass_the_callers_input_tensor_to_the_module) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    for (const bool recording : {true, false}) {
      const at::AutoGradMode mode(recording);
      Scaled module(rank);
      const auto input = at::ones({7, 2}).t().requires_grad_(true);  // transposed: not contiguous
      module(input);
      rank.observe(recording ? "same tensor, with gradients" : "same tensor, without gradients",
                   module.input.is_same(input));
    }
  });
  expect_on_all_ranks(run, "same tensor, with gradients", true);
  expect_on_all_ranks(run, "same tensor, without gradients", true);
}

MULTI_RANK_SUITE(T3_2_post_forward);

MULTI_RANK_TEST(T3_2_post_forward, a_unit_is_resharded_before_the_forward_of_the_next_unit) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    auto model = std::make_shared<ToyModel>(3);
    for (auto& parameter : model->blocks[0]->parameters())
      parameter.set_requires_grad(false);
    ShardedToy sharded(rank, model);
    std::string seen;
    for (const auto& block : model->blocks) {
      block->register_forward_pre_hook([&](Module&, const at::Tensor&) {
        seen += sharded.gathered() + "| ";
        return at::Tensor();
      });
    }
    (*sharded.model)(toy_tokens(0));
    rank.observe("units gathered as each block begins", seen);
  });
  expect_on_all_ranks(run, "units gathered as each block begins",
                      "root blocks0 | root blocks1 | root blocks2 | ");
}

// Only the unit's own flag decides whether the unit stays unsharded. Its name, its position in the
// model, the flags of other units, and frozen parameters make no difference. Backward needs frozen
// parameters too.
MULTI_RANK_TEST(T3_2_post_forward, reshard_after_forward_of_a_unit_decides_if_it_is_resharded) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    ToyModel model(3);
    for (auto& parameter : model.blocks[1]->parameters())
      parameter.set_requires_grad(false);
    std::vector<std::shared_ptr<FlatParameter>> units;
    for (auto& [module, name, parameters] : toy_units(model)) {
      units.push_back(make_flat_parameter(name, parameters, rank.communicator()));
      register_forward_hooks(*module, units.back(), /*reshard_after_forward=*/name != "blocks1");
    }
    const auto output = model(toy_tokens(0));
    std::string gathered;
    for (const auto& unit : units)
      gathered += unit->state() == UnitState::sharded ? "" : unit->unit() + " ";
    rank.observe("units gathered afterwards, of which blocks1 alone is not to be resharded",
                 gathered);
  });
  expect_on_all_ranks(
      run, "units gathered afterwards, of which blocks1 alone is not to be resharded", "blocks1 ");
}

// The hooks need not copy the output: autograd saves views of the parameters, whose values are
// gathered again in backward.
MULTI_RANK_TEST(T3_2_post_forward, forward_hooks_return_the_modules_output_tensor_to_the_caller) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    for (const bool recording : {true, false}) {
      const at::AutoGradMode mode(recording);
      Scaled module(rank);
      const auto output = module(at::ones({7, 2}).t());  // transposed, so it is not contiguous
      rank.observe(recording ? "same tensor, with gradients" : "same tensor, without gradients",
                   output.is_same(module.output));
    }
  });
  expect_on_all_ranks(run, "same tensor, with gradients", true);
  expect_on_all_ranks(run, "same tensor, without gradients", true);
}

MULTI_RANK_TEST(T3_2_post_forward, only_the_root_stays_unsharded_for_backward) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    ShardedToy sharded(rank);
    sharded.model->eval();
    const auto output = (*sharded.model)(toy_tokens(0));
    rank.observe("units gathered after a forward in eval(), which switches only dropout off",
                 sharded.gathered());
    rank.observe("gathered bytes after forward", live_bytes::now()[MemoryClass::gathered]);
    rank.observe("root's bytes", sharded.units[0]->layout().padded_numel * 4);
  });
  expect_on_all_ranks(
      run, "units gathered after a forward in eval(), which switches only dropout off", "root ");
  expect_on_each_rank(run, "gathered bytes after forward",
                      [&](int r) { return run.at(r, "root's bytes"); });
}

MULTI_RANK_TEST(T3_2_post_forward, without_reshard_every_unit_stays_unsharded) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    ShardedToy sharded(rank, 2, /*reshard_after_forward=*/false);
    const auto output = (*sharded.model)(toy_tokens(0));
    rank.observe("units gathered afterwards", sharded.gathered());
  });
  expect_on_all_ranks(run, "units gathered afterwards", "root blocks0 blocks1 ");
}

MULTI_RANK_TEST(T3_2_post_forward, at_most_one_unit_is_unsharded_besides_the_root) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.communicator();
    const int64_t before = live_bytes::now().total;
    ShardedToy sharded(rank, 4);
    rank.observe("owned bytes", live_bytes::now().total - before);
    live_bytes::enter(Phase::forward);
    (*sharded.model)(toy_tokens(0));
    rank.observe("peak of gathered bytes", live_bytes::peak(Phase::forward)[MemoryClass::gathered]);
    rank.observe("owned bytes and the root's, after forward", live_bytes::now().total - before);
  });
  const int64_t unit = toy_shard_bytes(0, world_size()) * world_size();
  expect_on_all_ranks(run, "owned bytes", toy_shard_bytes(4, world_size()));
  expect_on_all_ranks(run, "peak of gathered bytes", 2 * unit);
  expect_on_all_ranks(run, "owned bytes and the root's, after forward",
                      toy_shard_bytes(4, world_size()) + unit);
}

// This test is the sentinel of task 3: until it passes, the task gets no points. It compares no
// exact numbers of bytes, so hooks with other mistakes can pass it.
MULTI_RANK_TEST(T3_2_post_forward, after_forward_a_rank_holds_only_a_part_of_the_model) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.communicator();
    const RetainedMemory memory;
    // Besides its shards, a rank holds the root, which stays unsharded.
    ShardedToy sharded(rank, large_toy());
    (*sharded.model)(toy_tokens(0));
    rank.observe("what the rank holds", memory.taken());
  });
  expect_part_of(run, "what the rank holds", large_toy_bytes());
  expect_no_copies(run, "what the rank holds", large_toy_bytes());
}

}  // namespace
}  // namespace fsdp
