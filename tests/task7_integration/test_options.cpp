#include <fully_shard.h>
#include <memory/live_bytes.h>
#include <testing/call_text.h>
#include <testing/multi_rank.h>
#include <testing/toy_model.h>

#include <stdexcept>

#include "planned_models.h"

// Tests of the options of fully_shard(). Most of them check what a training step does.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(T7_1_options);

// A model of four blocks. Its root has no parameters of its own.
struct FourBlocks {
  FourBlocks() : model({make(1), make(2), make(3), make(4)}) {}
  static std::shared_ptr<Module> make(int64_t seed) { return std::make_shared<ToyBlock>(4, seed); }
  at::Tensor loss() { return model(at::ones({2, 4})).square().sum(); }
  std::vector<Module*> modules() {
    std::vector<Module*> result;
    for (const auto& module : model.row)
      result.push_back(module.get());
    return result;
  }
  Row model;
};

// A model of four blocks. Its root has parameters of its own.
struct BlocksInARoot {
  at::Tensor loss() { return model(toy_tokens(0)).square().sum(); }
  std::vector<Module*> modules() {
    std::vector<Module*> result;
    for (const auto& block : model.blocks)
      result.push_back(block.get());
    return result;
  }
  ToyModel model{4};
};

// Returns the numbers of the units, without the root, that are unsharded or being gathered: "0 1 ".
std::string gathered(const FullySharded& sharded) {
  std::string numbers;
  for (const auto& unit : sharded.units()) {
    if (unit->unit() == "root" || unit->state() == UnitState::sharded) continue;
    const char last = unit->unit().back();
    numbers += std::to_string(last >= 'a' ? last - 'a' : last - '0') + ' ';
  }
  return numbers;
}

// Runs two steps with this prefetch limit. Observes a text for each forward and backward. The text
// has, for each time at which a block begins its forward or backward or the root its backward, the
// blocks that are gathered then.
template <typename Model>
void watch_two_steps(TestRank& rank, int limit) {
  Model blocks;
  const auto sharded = fully_shard(blocks.model, rank.communicator(), {.limit = limit});
  std::string seen;
  const auto note = [&](const std::string& unit) {
    seen += unit + ": " + gathered(*sharded) + "| ";
  };
  const auto modules = blocks.modules();
  for (size_t i = 0; i < modules.size(); ++i) {
    modules[i]->register_forward_pre_hook([&, i](Module&, const at::Tensor&) {
      note(std::to_string(i));
      return at::Tensor();
    });
    modules[i]->register_full_backward_pre_hook([&, i](Module&) { note(std::to_string(i)); });
  }
  if (sharded->units()[0]->unit() == "root")
    blocks.model.register_full_backward_pre_hook([&](Module&) { note("root"); });
  const auto take = [&] { return std::exchange(seen, ""); };
  for (const std::string step : {"first", "second"}) {
    const auto loss = blocks.loss();
    rank.observe("blocks gathered as each block begins, " + step + " forward", take());
    loss.backward();
    rank.observe("blocks gathered as each unit begins, " + step + " backward", take());
    rank.observe("gathered after the " + step + " step", gathered(*sharded));
  }
}

// Returns for example "0: 0 1 | 1: 1 2 | 2: 2 3 | 3: 3 | " if `count` is 2: for each block, the
// block and the next count - 1 blocks. If `backward`, returns "3: 2 3 | 2: 1 2 | 1: 0 1 | 0: 0 | ":
// for each block, from the last one on, the previous count - 1 blocks and the block.
std::string windows(int count, bool backward) {
  std::string text;
  for (int step = 0; step < 4; ++step) {
    const int block = backward ? 3 - step : step;
    const int first = backward ? std::max(block - count + 1, 0) : block;
    const int last = backward ? block : std::min(block + count - 1, 3);
    text += std::to_string(block) + ": ";
    for (int i = first; i <= last; ++i)
      text += std::to_string(i) + ' ';
    text += "| ";
  }
  return text;
}

void expect_windows(const RankRun& run, int limit, bool root) {
  const auto expect = [&](const std::string& name, const std::string& expected) {
    expect_on_all_ranks(run, name, expected);
  };
  expect("blocks gathered as each block begins, first forward", windows(1, false));
  expect("blocks gathered as each block begins, second forward", windows(limit, false));
  for (const std::string step : {"first", "second"}) {
    expect("blocks gathered as each unit begins, " + step + " backward",
           // No block is gathered yet when the backward of the root begins.
           (root ? "root: | " : "") + windows(limit, true));
    expect("gathered after the " + step + " step", "");
  }
}

MULTI_RANK_TEST(T7_1_options, in_fully_shard_up_to_limit_units_are_gathered_at_a_time) {
  for (const int limit : {1, 2, 3, 100}) {
    SCOPED_TRACE("limit " + std::to_string(limit));
    expect_windows(
        run_ranks(world_size(),
                  [limit](TestRank& rank) { watch_two_steps<BlocksInARoot>(rank, limit); }),
        limit, /*root=*/true);
  }
}

MULTI_RANK_TEST(T7_1_options, prefetch_also_works_if_the_root_has_no_parameters) {
  for (const int limit : {1, 2, 3}) {
    SCOPED_TRACE("limit " + std::to_string(limit));
    expect_windows(run_ranks(world_size(),
                             [limit](TestRank& rank) { watch_two_steps<FourBlocks>(rank, limit); }),
                   limit, /*root=*/false);
  }
}

MULTI_RANK_TEST(T7_1_options, without_reshard_after_forward_units_stay_unsharded_for_backward) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    FourBlocks blocks;
    const auto sharded =
        fully_shard(blocks.model, rank.communicator(), {.reshard_after_forward = false});
    for (const std::string step : {"first", "second"}) {
      const auto loss = blocks.loss();
      rank.observe("gathered after the " + step + " forward", gathered(*sharded));
      take_calls(*rank.communicator());
      loss.backward();
      rank.observe("calls of the " + step + " backward", take_calls(*rank.communicator()));
      rank.observe("gathered after the " + step + " backward", gathered(*sharded));
    }
    at::NoGradGuard no_grad;
    blocks.loss();
    rank.observe("gathered after a forward without gradients", gathered(*sharded));
  });
  for (const std::string step : {"first", "second"}) {
    expect_on_all_ranks(run, "gathered after the " + step + " forward", "0 1 2 3 ");
    expect_on_all_ranks(run, "calls of the " + step + " backward",
                        "reduce_scatter d; reduce_scatter c; reduce_scatter b; reduce_scatter a; ");
    expect_on_all_ranks(run, "gathered after the " + step + " backward", "");
  }
  expect_on_all_ranks(run, "gathered after a forward without gradients", "");
}

MULTI_RANK_TEST(T7_1_options,
                units_that_backward_does_not_reach_are_reduced_last_in_reverse_order) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    ToyModel model(4);
    model.order = {0, 2};
    const auto sharded = fully_shard(model, rank.communicator());
    const auto loss = model(toy_tokens(rank.rank())).square().sum();
    take_calls(*rank.communicator());
    loss.backward();
    rank.observe("calls of backward; BackwardHooks::add() was called in the order of forward",
                 take_calls(*rank.communicator()));
  });
  expect_on_all_ranks(run,
                      "calls of backward; BackwardHooks::add() was called in the order of forward",
                      "all_gather blocks2; all_gather blocks0; reduce_scatter blocks2; "
                      "reduce_scatter blocks0; reduce_scatter blocks3; reduce_scatter blocks1; "
                      "reduce_scatter root; ");
}

MULTI_RANK_TEST(T7_1_options, fully_shard_gathers_nothing_and_lays_out_units_as_its_layout_says) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Nested model(kShared);
    // Freezes the last parameter of the unit a.inner, and all parameters of the unit b.
    model.a->inner->spare.set_requires_grad(false);
    for (const at::Tensor& p : model.b->parameters(/*recurse=*/false))
      p.set_requires_grad(false);
    const auto sharded = fully_shard(model, rank.communicator());
    rank.observe("calls", take_calls(*rank.communicator()));
    ShardLayout units;  // the layout of the units that fully_shard() has made
    units.world_size = rank.world_size();
    for (const auto& unit : sharded->units()) {
      for (size_t i = 0; i < unit->parameters().size(); ++i) {
        const auto& [name, tensor] = unit->parameters()[i];
        units.parameters.push_back({name, units.units.size(), unit->layout().offsets[i],
                                    tensor.numel(), tensor.requires_grad()});
      }
      units.units.push_back(
          {unit->unit(), unit->layout().padded_numel, /*root=*/false, unit->trainable()});
    }
    rank.observe("layout", lines(sharded->layout()));
    rank.observe("units", lines(units));
  });
  expect_on_all_ranks(run, "calls", "");
  expect_on_each_rank(run, "layout", [&](int r) { return run.at(r, "units"); });
}

// The two models differ in sizes and options. Each sharded gradient is the sum of two steps, and
// equals that of a process that has only this model.
MULTI_RANK_TEST(T7_1_options, two_models_in_one_loss_do_not_disturb_each_other) {
  const auto gradients = [&](bool first, bool second) {
    return run_ranks(world_size(), [=](TestRank& rank) {
      ToyModel one(2), two(3, 5);
      std::shared_ptr<FullySharded> sharded_one, sharded_two;
      if (first) sharded_one = fully_shard(one, rank.communicator(), {.limit = 3});
      if (first && second) rank.observe("the second model of this process is sharded now", true);
      if (second) {
        sharded_two = fully_shard(two, rank.communicator(), {.reshard_after_forward = false});
      }
      for (int step = 0; step < 2; ++step) {
        at::Tensor loss = at::zeros({});
        if (first) loss = loss + one(toy_tokens(rank.rank())).square().sum();
        if (second) loss = loss + two(toy_tokens(rank.rank() + step)).square().sum();
        loss.backward();
      }
      const auto observe = [&](const std::string& name, const FullySharded& sharded) {
        for (const auto& unit : sharded.units())
          rank.observe(name + " " + unit->unit(), unit->sharded_gradient());
      };
      if (first) observe("one", *sharded_one);
      if (second) observe("two", *sharded_two);
      rank.observe("gathered bytes", live_bytes::now()[MemoryClass::gathered]);
    });
  };
  const RankRun both = gradients(true, true);
  const RankRun one = gradients(true, false), two = gradients(false, true);
  expect_on_all_ranks(both, "gathered bytes", 0);
  for (const std::string unit : {"root", "blocks0", "blocks1", "blocks2"}) {
    const auto expect_of = [&](const std::string& name, const RankRun& alone) {
      expect_on_each_rank(both, name, [&](int r) { return alone.at(r, name); });
    };
    if (unit != "blocks2") expect_of("one " + unit, one);
    expect_of("two " + unit, two);
  }
}

MULTI_RANK_TEST(T7_1_options, fully_shard_rethrows_what_the_option_materialize_throws) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    // The model is so large that every rank owns elements of each unit.
    ToyModel model(1, 40);
    FullyShardOptions options;
    options.materialize = [](const at::Tensor&) -> at::Tensor {
      throw std::out_of_range("no values for this parameter");
    };
    rank.observe("what fully_shard() throws",
                 thrown_by([&] { fully_shard(model, rank.communicator(), options); }));
  });
  expect_error(run, "what fully_shard() throws", {"std::out_of_range"});
}

// When a model and its FullySharded are gone, no memory is left, whichever of the two is freed
// first.
MULTI_RANK_TEST(T7_1_options, shards_gradients_and_hooks_are_freed_with_the_model) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.communicator();
    const int64_t before = live_bytes::now().total;
    for (const std::string first : {"model", "FullySharded"}) {
      auto model = std::make_shared<ToyModel>(3);
      auto sharded = fully_shard(*model, rank.communicator(),
                                 {.reshard_after_forward = first == "model", .limit = 3});
      for (int step = 0; step < 2; ++step)
        (*model)(toy_tokens(rank.rank())).square().sum().backward();
      const std::weak_ptr<FullySharded> left = sharded;
      rank.observe("bytes of shards before the " + first + " goes first",
                   live_bytes::now()[MemoryClass::shards]);
      if (first == "model") model.reset();
      sharded.reset();
      model.reset();
      rank.observe("the FullySharded is alive when both are gone, the " + first + " first",
                   !left.expired());
      // The communicator keeps the tensors alive that other ranks read in place.
      // wait_for_readers() waits until the other ranks have read them, and frees them.
      rank.communicator()->wait_for_readers();
      rank.observe("bytes that are left if the " + first + " goes first",
                   live_bytes::now().total - before);
    }
  });
  for (const std::string first : {"model", "FullySharded"}) {
    const std::string before = "bytes of shards before the " + first + " goes first";
    EXPECT_GT(run.at(0, before).get<int64_t>(), 0) << before;
    expect_on_all_ranks(
        run, "the FullySharded is alive when both are gone, the " + first + " first", false);
    expect_on_all_ranks(run, "bytes that are left if the " + first + " goes first", 0);
  }
}

}  // namespace
}  // namespace fsdp
