#include <testing/provenance.h>

#include "sharded_model.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T4_1_pre_backward);

// A module that returns the sum of its input and of two parameters. In backward, the gradients of
// the two parameters arrive one after the other, and no values of parameters are read.
struct Sum : Module {
  torch::Tensor forward(torch::Tensor x) override { return x + first + second; }
  at::Tensor first = register_parameter("first", at::ones({7}));    // [7]
  at::Tensor second = register_parameter("second", at::ones({7}));  // [7]
};

MULTI_RANK_TEST(T4_1_pre_backward, a_unit_stays_unsharded_until_all_its_gradients_have_arrived) {
  const auto name = [](int gradient) {
    return "the unit is unsharded as gradient " + std::to_string(gradient) + " of 2 arrives";
  };
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    Sum sum;
    const auto unit = make_flat_parameter(
        "sum", std::vector<NamedParameter>{{"first", sum.first}, {"second", sum.second}},
        rank.communicator());
    register_forward_hooks(sum, unit, /*reshard_after_forward=*/true);
    const auto hooks = make_backward_hooks();
    hooks->add(sum, unit);
    int arrived = 0;
    for (const at::Tensor& parameter : {sum.first, sum.second}) {
      parameter.register_hook([&](const at::Tensor&) {
        rank.observe(name(++arrived), unit->state() == UnitState::unsharded);
      });
    }
    sum(at::zeros({7}).requires_grad_(true)).sum().backward();
  });
  expect_on_all_ranks(run, name(1), true);
  expect_on_all_ranks(run, name(2), true);
}

MULTI_RANK_TEST(T4_1_pre_backward, units_are_unsharded_in_reverse_order) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    const auto loss = plain_loss(*sharded.model, rank.rank());
    rank.communicator()->take_log();
    loss.backward();
    rank.observe("all-gathers of backward",
                 units_of("all_gather", take_calls(*rank.communicator())));
  });
  expect_on_all_ranks(run, "all-gathers of backward", "blocks2; blocks1; blocks0; ");
}

MULTI_RANK_TEST(T4_1_pre_backward, a_unit_is_unsharded_when_the_gradient_of_its_output_arrives) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    // Block 1 is frozen. Gradients pass through it to block 0.
    Sharded sharded(rank, 3, /*frozen_block=*/1);
    std::string seen;
    for (size_t i = sharded.units.size() - 1; i > 0; --i) {
      sharded.modules[i]->register_full_backward_pre_hook([&, i](Module&) {
        for (const auto& unit : {sharded.units[0], sharded.units[i]})
          seen += unit->state() == UnitState::unsharded ? unit->unit() + " " : "";
        seen += "| ";
      });
    }
    plain_loss(*sharded.model, rank.rank()).backward();
    rank.observe(
        "of the root and the block, those unsharded as its gradient arrives, frozen or not", seen);
  });
  expect_on_all_ranks(run,
                      "of the root and the block, those unsharded as its gradient arrives, "
                      "frozen or not",
                      "root blocks2 | root blocks1 | root blocks0 | ");
}

MULTI_RANK_TEST(T4_1_pre_backward, without_reshard_after_forward_backward_issues_no_all_gather) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank, toy_model(3), /*reshard_after_forward=*/false);
    const auto loss = plain_loss(*sharded.model, rank.rank());
    take_calls(*rank.communicator());
    loss.backward();
    rank.observe("all-gathers of backward",
                 units_of("all_gather", take_calls(*rank.communicator())));
  });
  expect_on_all_ranks(run, "all-gathers of backward", "");
}

MULTI_RANK_TEST(T4_1_pre_backward, a_unit_whose_backward_reads_no_parameter_is_not_gathered) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank, shifting_toy(3));
    const auto loss = plain_loss(*sharded.model, rank.rank());
    take_calls(*rank.communicator());
    loss.backward();
    rank.observe("all-gathers of backward",
                 units_of("all_gather", take_calls(*rank.communicator())));
  });
  expect_on_all_ranks(run, "all-gathers of backward", "blocks2; blocks0; ");
}

// The prefetch of task 6 issues all-gathers ahead of their use. Backward must not read a unit's
// parameters before its all-gather has ended.
MULTI_RANK_TEST(T4_1_pre_backward, backward_waits_for_a_units_all_gather_that_was_issued_ahead) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    sharded.model->blocks[2]->register_full_backward_pre_hook(
        [&](Module&) { sharded.units[2]->unshard_async(); });
    const auto loss = plain_loss(*sharded.model, rank.rank());
    take_calls(*rank.communicator());
    loss.backward();
    rank.observe("all-gathers of backward",
                 units_of("all_gather", take_calls(*rank.communicator())));
    sharded.observe_units_whose_gradient_holds_nan(rank);
  });
  expect_on_all_ranks(run, kHoldNan, "");
  expect_on_all_ranks(run, "all-gathers of backward", "blocks2; blocks1; blocks0; ");
}

// An evaluation reshards the root, which forward had left unsharded for backward.
MULTI_RANK_TEST(T4_1_pre_backward,
                backward_gathers_the_root_that_an_evaluation_after_forward_has_resharded) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    int ends = 0;
    sharded.hooks->on_end([&] { ++ends; });
    const auto loss = plain_loss(*sharded.model, rank.rank());
    {
      at::NoGradGuard no_grad;
      (*sharded.model)(toy_tokens(rank.rank() + 1));
    }
    rank.observe("calls of on_end() before the pass", ends);
    take_calls(*rank.communicator());
    loss.backward();
    rank.observe("all-gathers of backward",
                 units_of("all_gather", take_calls(*rank.communicator())));
    sharded.observe_units_whose_gradient_holds_nan(rank);
  });
  expect_on_all_ranks(run, "calls of on_end() before the pass", 0);
  expect_on_all_ranks(run, "all-gathers of backward", "root; blocks2; blocks1; blocks0; ");
  expect_on_all_ranks(run, kHoldNan, "");
}

// A block whose output is a view. A view loses its own hooks when it is changed in place.
struct ViewedBlock : ToyBlock {
  using ToyBlock::ToyBlock;
  torch::Tensor forward(torch::Tensor x) override { return ToyBlock::forward(x).view({-1}); }
};

MULTI_RANK_TEST(T4_1_pre_backward, a_unit_is_unsharded_even_if_its_output_is_changed_in_place) {
  const MakeToy make = [] {
    auto model = toy_model(3);
    model->blocks[0] = std::make_shared<ViewedBlock>(7, 100);
    return model;
  };
  const Loss loss = [](ToyModel& model, int rank) {
    auto y = (*model.blocks[0])(at::embedding(model.embedding, toy_tokens(rank)));
    y = y.mul_(2);
    return y.sum() * model.head.sum();
  };
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    Sharded sharded(rank, make());
    // The loss does not call the root's forward, so the test unshards the root's unit itself.
    sharded.units[0]->unshard();
    loss(*sharded.model, rank.rank()).backward();
    sharded.observe_units_whose_gradient_holds_nan(rank);
  });
  expect_on_all_ranks(run, kHoldNan, "");
}

// The test drops its pointer to the BackwardHooks object. The hooks of the modules must then keep
// the object alive.
MULTI_RANK_TEST(T4_1_pre_backward, modules_keep_the_backward_hooks_object_alive) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    const auto loss = plain_loss(*sharded.model, rank.rank());
    const std::weak_ptr<BackwardHooks> hooks = sharded.hooks;
    sharded.hooks.reset();
    rank.observe("the BackwardHooks object is alive", !hooks.expired());
    take_calls(*rank.communicator());
    if (!hooks.expired()) loss.backward();
    rank.observe("all-gathers of backward",
                 units_of("all_gather", take_calls(*rank.communicator())));
  });
  expect_on_all_ranks(run, "the BackwardHooks object is alive", true);
  expect_on_all_ranks(run, "all-gathers of backward", "blocks2; blocks1; blocks0; ");
}

// Destroys the model after one whole backward pass and a forward whose loss is dropped, and looks
// for what is left. (After a pass that breaks off, LibTorch's engine itself would keep what it has
// not run.)
MULTI_RANK_TEST(T4_1_pre_backward, units_and_backward_hooks_are_freed_with_the_model) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.communicator();
    const int64_t before = live_bytes::now().total;
    std::vector<std::weak_ptr<FlatParameter>> units;
    std::weak_ptr<BackwardHooks> hooks;
    at::Tensor held;
    {
      const Sharded sharded(rank);
      held = sharded.units.back()->parameters()[0].tensor;
      units.assign(sharded.units.begin(), sharded.units.end());
      hooks = sharded.hooks;
      plain_loss(*sharded.model, rank.rank()).backward();
      plain_loss(*sharded.model, rank.rank());
    }
    rank.observe("units that are left", std::count_if(units.begin(), units.end(),
                                                      [](auto& unit) { return !unit.expired(); }));
    rank.observe("the BackwardHooks object is left", !hooks.expired());
    // The communicator keeps the shards alive, because other ranks read them in place.
    // wait_for_readers() waits until they have read the shards, and frees them.
    rank.communicator()->wait_for_readers();
    held.mutable_grad().reset();
    rank.observe("bytes that are left", live_bytes::now().total - before);

    if (!units.back().expired()) return;
    held.set_data(at::ones(held.sizes()));
    rank.observe("a backward begins over a parameter that outlives its unit", true);
    (held * 3).sum().backward();
    rank.observe("the gradient of a parameter without its unit", held.grad().mean().item<double>());
  });
  expect_on_all_ranks(run, "units that are left", 0);
  expect_on_all_ranks(run, "the gradient of a parameter without its unit", 3.);
  expect_on_all_ranks(run, "the BackwardHooks object is left", false);
  expect_on_all_ranks(run, "bytes that are left", 0);
}

MULTI_RANK_SUITE(T4_2_reduce_scatter);

MULTI_RANK_TEST(T4_2_reduce_scatter,
                a_unit_is_reduced_and_resharded_before_backward_of_the_next_begins) {
  for (const bool reshard_after_forward : {true, false}) {
    SCOPED_TRACE(reshard_after_forward ? "" : "units are not resharded after forward");
    const RankRun run = run_ranks(world_size(), [=](TestRank& rank) {
      Sharded sharded(rank, toy_model(3), reshard_after_forward);
      const auto seen = look_at_arrivals(sharded, [&] {
        return take_calls(*rank.communicator()) + "gathered: " + sharded.gathered();
      });
      const auto loss = plain_loss(*sharded.model, rank.rank());
      take_calls(*rank.communicator());
      live_bytes::enter(Phase::backward);
      loss.backward();
      rank.observe("calls and units gathered as each block's gradient arrives", *seen);
      rank.observe("peak of gathered bytes",
                   live_bytes::peak(Phase::backward)[MemoryClass::gathered]);
      rank.observe("bytes of a unit", sharded.units[0]->layout().padded_numel * 4);
    });
    expect_on_all_ranks(
        run, "calls and units gathered as each block's gradient arrives",
        reshard_after_forward
            ? "all_gather blocks2; gathered: root blocks2 | "
              "reduce_scatter blocks2; all_gather blocks1; gathered: root blocks1 | "
              "reduce_scatter blocks1; all_gather blocks0; gathered: root blocks0 | "
            : "gathered: root blocks0 blocks1 blocks2 | "
              "reduce_scatter blocks2; gathered: root blocks0 blocks1 | "
              "reduce_scatter blocks1; gathered: root blocks0 | ");
    expect_on_each_rank(run, "peak of gathered bytes", [&](int r) {
      return run.at(r, "bytes of a unit").get<int64_t>() * (reshard_after_forward ? 2 : 4);
    });
  }
}

// The hooks wait for a reduction only when they issue the next one, so that the computation of one
// more block hides the reduction.
MULTI_RANK_TEST(T4_2_reduce_scatter, a_reduce_scatter_is_waited_for_when_the_next_one_is_issued) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    const auto seen = look_at_arrivals(sharded, [&] { return sharded.reduced(); });
    plain_loss(*sharded.model, rank.rank()).backward();
    rank.observe("units whose reduction was waited for, as each block's gradient arrives", *seen);
  });
  expect_on_all_ranks(run, "units whose reduction was waited for, as each block's gradient arrives",
                      "| | blocks2 | ");
}

MULTI_RANK_TEST(T4_2_reduce_scatter,
                backward_does_not_wait_for_a_pending_reduction_at_a_frozen_unit) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank, 4, /*frozen_block=*/2);
    const auto seen = look_at_arrivals(sharded, [&] { return sharded.reduced(); });
    plain_loss(*sharded.model, rank.rank()).backward();
    rank.observe("units whose reduction was waited for, as each block's gradient arrives", *seen);
  });
  expect_on_all_ranks(run, "units whose reduction was waited for, as each block's gradient arrives",
                      "| | | blocks3 | ");
}

// A module that adds its weight to its input. So the gradient of the weight equals the gradient of
// the output.
struct Sender : Module {
  Sender() { weight = register_parameter("weight", at::zeros({48})); }
  torch::Tensor forward(torch::Tensor x) override { return x + weight; }
  at::Tensor weight;  // [48]
};

MULTI_RANK_TEST(T4_2_reduce_scatter, every_ranks_gradient_counts_exactly_once) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sender sender;
    auto unit = make_flat_parameter(
        "sender", std::vector<NamedParameter>{{"weight", sender.weight}}, rank.communicator());
    auto hooks = make_backward_hooks();
    register_forward_hooks(sender, unit, true);
    hooks->add(sender, unit);
    const auto y = sender(at::zeros({48}).requires_grad_(true));
    const auto share = static_cast<double>(provenance::gradient(rank.rank(), rank.world_size()));
    y.backward(at::full_like(y, share));
    // The hooks may leave this wait to the end of the backward pass.
    unit->wait_for_reduction();
    rank.observe("gradient", unit->sharded_gradient(), places_of_shard(*unit));
  });
  const int64_t shard = round_up(48, int64_t{16} * world_size()) / world_size();
  expect_mean_over_ranks(run, "gradient", [&](int rank) {
    return Places{{{"weight", {48}, 0}}, shard, rank * shard};
  });
}

MULTI_RANK_TEST(T4_2_reduce_scatter, gradients_are_the_mean_over_ranks_bit_by_bit) {
  const MakeToy shifting = [] { return shifting_toy(3); };
  for (const MakeToy& make : {kThreeBlocks, shifting}) {
    const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
      Sharded sharded(rank, make());
      plain_loss(*sharded.model, rank.rank()).backward();
      sharded.observe_gradients_of_blocks(rank);
    });
    expect_gradients_of_blocks(run, plain_loss, make);
  }
}

// Each block has three parameters. In the first run, only the middle one is frozen during backward;
// in the second run, only the other two are. When the hooks are added, the opposite parameters are
// frozen.
MULTI_RANK_TEST(T4_2_reduce_scatter, a_frozen_parameter_among_others_counts_as_zero) {
  const auto freeze = [](ToyModel& model, bool middle) {
    for (const auto& block : model.blocks)
      for (auto& parameter : block->parameters())
        parameter.set_requires_grad(middle != parameter.is_same(block->bias));
  };
  for (const bool middle : {true, false}) {
    SCOPED_TRACE(middle
                     ? "at add() only the biases require gradients, in backward only the others"
                     : "at add() all but the biases require gradients, in backward only they do");
    const MakeToy make = [=] {
      auto model = toy_model(3);
      freeze(*model, middle);
      return model;
    };
    const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
      const auto model = toy_model(3);
      freeze(*model, !middle);
      Sharded sharded(rank, model);
      freeze(*model, middle);
      plain_loss(*model, rank.rank()).backward();
      sharded.observe_gradients_of_blocks(rank);
    });
    expect_gradients_of_blocks(run, plain_loss, make);
  }
}

MULTI_RANK_TEST(T4_2_reduce_scatter, full_gradients_of_at_most_two_units_and_the_root_are_alive) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    int64_t of_root = 0, of_blocks = 0;
    sharded.model->blocks[2]->register_full_backward_pre_hook([&](Module&) {
      of_root = live_bytes::now()[MemoryClass::gradients];
      live_bytes::enter(Phase::backward);
    });
    sharded.model->blocks[0]->register_full_backward_hook(
        [&](Module&) { of_blocks = live_bytes::peak()[MemoryClass::gradients] - of_root; });
    plain_loss(*sharded.model, rank.rank()).backward();
    rank.observe("peak of the blocks' full gradients, in bytes", of_blocks);
    rank.observe("peak of all full gradients, in bytes",
                 live_bytes::peak(Phase::backward)[MemoryClass::gradients]);
    rank.observe("bytes of the root", sharded.units[0]->layout().padded_numel * 4);
    rank.observe("bytes of a block", sharded.units[1]->layout().padded_numel * 4);
  });
  for (int r = 0; r < world_size(); ++r) {
    // A solution may make the flat gradient of a unit when it collects the first gradient. Then
    // three flat gradients are alive at a time: that of the root, that of the block that runs, and
    // that of the block that is being reduced.
    const auto root = run.at(r, "bytes of the root").get<int64_t>();
    const auto block = run.at(r, "bytes of a block").get<int64_t>();
    const auto blocks = run.at(r, "peak of the blocks' full gradients, in bytes").get<int64_t>();
    const auto all = run.at(r, "peak of all full gradients, in bytes").get<int64_t>();
    EXPECT_LE(blocks, 2 * block) << "rank " << r << ": more than two blocks' full gradients, of "
                                 << block << " bytes each, are alive at a time. A reduction is "
                                 << "waited for before the next flat gradient is made";
    EXPECT_LE(all, root + 2 * block) << "peak of all full gradients' bytes on rank " << r;
    // If no live bytes were counted, the checks above would pass, but this one fails.
    EXPECT_GE(all, root) << "rank " << r;
  }
}

}  // namespace
}  // namespace fsdp
