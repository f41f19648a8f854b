#include "sharded_model.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T4_4_finish);

MULTI_RANK_TEST(T4_4_finish, no_unit_stays_unsharded_and_no_full_gradient_is_left) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.communicator();
    const int64_t before = live_bytes::now().total;
    Sharded sharded(rank);
    int ends = 0;
    sharded.hooks->on_end([&] { ++ends; });
    plain_loss(*sharded.model, rank.rank()).backward();
    rank.observe("all bytes that are left", live_bytes::now().total - before);
    rank.observe("gathered bytes that are left", live_bytes::now()[MemoryClass::gathered]);
    rank.observe("bytes of full gradients left", live_bytes::now()[MemoryClass::gradients]);
    rank.observe("calls of on_end()", ends);
    int64_t left = 0;
    for (const auto& p : sharded.model->parameters())
      left += p.grad().defined();
    rank.observe("parameters that have .grad", left);
  });
  expect_on_all_ranks(run, "gathered bytes that are left", 0);
  expect_on_all_ranks(run, "bytes of full gradients left", 0);
  // Only the shards of the parameters and the sharded gradients may be left.
  expect_on_all_ranks(run, "all bytes that are left", 2 * toy_shard_bytes(3, world_size()));
  expect_on_all_ranks(run, "calls of on_end()", 1);
  expect_on_all_ranks(run, "parameters that have .grad", 0);
}

// This test is the sentinel of task 4: until it passes, the task gets no points. It compares no
// exact numbers of bytes, so backward hooks with other mistakes can pass it.
MULTI_RANK_TEST(T4_4_finish, after_backward_a_rank_holds_only_a_part_of_parameters_and_gradients) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.communicator();
    const RetainedMemory memory;
    Sharded sharded(rank, large_toy());
    plain_loss(*sharded.model, rank.rank()).backward();
    rank.observe("what the rank holds", memory.taken());
  });
  expect_part_of(run, "what the rank holds", 2 * large_toy_bytes());
  expect_no_copies(run, "what the rank holds", large_toy_bytes());
}

MULTI_RANK_TEST(T4_4_finish, on_end_runs_when_all_units_are_reduced_and_resharded) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    std::string gathered, reduced;
    sharded.hooks->on_end([&] {
      gathered += sharded.gathered() + "| ";
      reduced += sharded.reduced() + "| ";
    });
    plain_loss(*sharded.model, rank.rank()).backward();
    rank.observe("units gathered at each on_end()", gathered);
    rank.observe("units reduced at each on_end()", reduced);
    auto gone = std::make_unique<Sharded>(rank);
    const std::weak_ptr<BackwardHooks> hooks = gone->hooks;
    gone->model->embedding.register_hook([&](const at::Tensor&) {
      gone.reset();
      rank.observe("BackwardHooks is alive in a pass whose model is gone", !hooks.expired());
    });
    plain_loss(*gone->model, rank.rank()).backward();
  });
  expect_on_all_ranks(run, "BackwardHooks is alive in a pass whose model is gone", true);
  expect_on_all_ranks(run, "units gathered at each on_end()", "| ");
  expect_on_all_ranks(run, "units reduced at each on_end()", "root blocks0 blocks1 blocks2 | ");
}

// The prefetch of task 6 may gather a unit after its reduction, because it expects one more use of
// the unit.
MULTI_RANK_TEST(T4_4_finish, a_unit_gathered_again_after_its_reduction_is_resharded) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    sharded.model->blocks[0]->register_full_backward_pre_hook(
        [&](Module&) { sharded.units[3]->unshard_async(); });
    plain_loss(*sharded.model, rank.rank()).backward();
    rank.observe("units still gathered", sharded.gathered());
    sharded.observe_gradients(rank);
  });
  expect_on_all_ranks(run, "units still gathered", "");
  expect_gradients_of_one_process(run, plain_loss);
}

// All parameters are frozen. Only the input of the first block gets a gradient.
MULTI_RANK_TEST(T4_4_finish, a_backward_pass_through_frozen_units_reshards_and_calls_on_end) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto x = trainable_input(rank.rank());
    Sharded sharded(rank, frozen_model(x));
    int ends = 0;
    sharded.hooks->on_end([&] { ++ends; });
    const auto loss = plain_loss(*sharded.model, rank.rank());
    take_calls(*rank.communicator());
    loss.backward();
    rank.observe("calls", take_calls(*rank.communicator()));
    rank.observe("calls of on_end()", ends);
    rank.observe("units still gathered", sharded.gathered());
    rank.observe("the input's gradient", x.grad());
    (*sharded.model->blocks[0])(x).sum().backward();  // a backward pass through block 0 only
    rank.observe("calls of on_end() after a pass through one block", ends);
  });
  expect_on_all_ranks(run, "units still gathered", "");
  expect_on_all_ranks(run, "calls of on_end()", 1);
  expect_on_all_ranks(run, "calls", "all_gather blocks2; all_gather blocks1; all_gather blocks0; ");
  expect_on_all_ranks(run, "calls of on_end() after a pass through one block", 2);
  for (int r = 0; r < world_size(); ++r) {
    const RankRun expected = run_oracle([&](TestRank& rank) {
      const auto x = trainable_input(r);
      plain_loss(*frozen_model(x), r).backward();
      rank.observe("the input's gradient", x.grad());
    });
    expect_on_rank(run, r, "the input's gradient", expected.at(0, "the input's gradient"));
  }
}

// The loss depends on a parameter of the root directly, and not on the output of any module.
MULTI_RANK_TEST(T4_4_finish, a_backward_pass_that_reaches_no_module_reduces_and_calls_on_end) {
  const Loss loss = [](ToyModel& model, int) { return model.head.square().sum(); };
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    Sharded sharded(rank);
    int ends = 0;
    sharded.hooks->on_end([&] { ++ends; });
    sharded.units[0]->unshard();
    loss(*sharded.model, rank.rank()).backward();
    rank.observe("calls of on_end()", ends);
    rank.observe("units reduced, in order", reductions(take_calls(*rank.communicator())));
    rank.observe("units still gathered", sharded.gathered());
    sharded.observe_gradients(rank);
  });
  expect_on_all_ranks(run, "calls of on_end()", 1);
  expect_on_all_ranks(run, "units reduced, in order", "blocks2; blocks1; blocks0; root; ");
  expect_on_all_ranks(run, "units still gathered", "");
  expect_gradients_of_one_process(run, loss);
}

// A hook runs an evaluation when the last gradient has arrived and the reduction of blocks0 is
// under way.
MULTI_RANK_TEST(T4_4_finish, a_forward_inside_a_backward_pass_does_not_end_this_pass) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    int ends = 0, evaluations = 0;
    sharded.hooks->on_end([&] { ++ends; });
    sharded.model->embedding.register_hook([&](const at::Tensor&) {
      at::NoGradGuard no_grad;
      (*sharded.model)(toy_tokens(0));
      ++evaluations;
      return at::Tensor();
    });
    plain_loss(*sharded.model, rank.rank()).backward();
    rank.observe("evaluations inside the pass", evaluations);
    rank.observe("calls of on_end()", ends);
    rank.observe("units reduced, in order", reductions(take_calls(*rank.communicator())));
    sharded.observe_gradients(rank);
  });
  expect_on_all_ranks(run, "evaluations inside the pass", 1);
  expect_on_all_ranks(run, "calls of on_end()", 1);
  expect_on_all_ranks(run, "units reduced, in order", "blocks2; blocks1; blocks0; root; ");
  expect_gradients_of_one_process(run, plain_loss);
}

MULTI_RANK_TEST(T4_4_finish, two_models_in_one_loss_each_call_on_end_once) {
  const auto loss = [](ToyModel& one, ToyModel& two, int rank) {
    return (one(toy_tokens(rank)) * two(toy_tokens(rank + 1))).square().sum();
  };
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    Sharded one(rank, toy_model(3)), two(rank, other_toy(3));
    int ends_of_one = 0, ends_of_two = 0;
    one.hooks->on_end([&] { ++ends_of_one; });
    two.hooks->on_end([&] { ++ends_of_two; });
    loss(*one.model, *two.model, rank.rank()).backward();
    rank.observe("calls of on_end() of each model", std::vector{ends_of_one, ends_of_two});
    rank.observe("units still gathered", one.gathered() + two.gathered());
    one.observe_gradients(rank, "first model's ");
    two.observe_gradients(rank, "second model's ");
  });
  expect_on_all_ranks(run, "calls of on_end() of each model", std::vector{1, 1});
  expect_on_all_ranks(run, "units still gathered", "");
  const int w = world_size();
  const RankRun expected = run_oracle([&](TestRank& rank) {
    const auto one = toy_model(3), two = other_toy(3);
    const auto value = [&](int r) { return loss(*one, *two, r); };
    observe_means(rank, *one, mean_gradients(*one, w, value), w, "first model's ");
    for (auto& parameter : two->parameters())
      // Drops the gradients that the backward passes for the means of the first model have left in
      // the second model, because one loss contains both models.
      parameter.mutable_grad().reset();
    observe_means(rank, *two, mean_gradients(*two, w, value), w, "second model's ");
  });
  expect_gradients(run, expected, "first model's ");
  expect_gradients(run, expected, "second model's ");
}

MULTI_RANK_TEST(T4_4_finish, a_second_backward_pass_adds_its_gradients) {
  const Loss twice = [](ToyModel& model, int rank) { return plain_loss(model, rank) * 2; };
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    plain_loss(*sharded.model, rank.rank()).backward();
    plain_loss(*sharded.model, rank.rank()).backward();
    sharded.observe_gradients(rank);
  });
  expect_gradients_of_one_process(run, twice);
}

// A backward pass must not use what the hooks noted in the pass before it. In one case, the output
// of a call is not part of the loss of the earlier pass. In the other case, the earlier pass does
// not use a unit.
MULTI_RANK_TEST(T4_4_finish, calls_that_one_pass_left_out_do_not_affect_the_next_pass) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    const auto pass = [&](const Loss& loss) {
      sharded.model->order = {0, 1, 2};
      const auto value = loss(*sharded.model, rank.rank());
      take_calls(*rank.communicator());
      value.backward();
      return take_calls(*rank.communicator());
    };
    pass(kOutputDropped);
    rank.observe("calls of the pass after one that waited for a dropped output", pass(plain_loss));
    rank.observe("calls of a pass without blocks1", pass(kBlockUnused));
    rank.observe("calls of the pass after one without blocks1", pass(plain_loss));
  });
  expect_on_all_ranks(run, "calls of the pass after one that waited for a dropped output",
                      kBackward);
  expect_on_all_ranks(run, "calls of a pass without blocks1",
                      "all_gather blocks2; reduce_scatter blocks2; all_gather blocks0; "
                      "reduce_scatter blocks0; reduce_scatter blocks1; reduce_scatter root; ");
  expect_on_all_ranks(run, "calls of the pass after one without blocks1", kBackward);
}

constexpr int kSteps = 5;
// Learning rate. It is a power of two, so multiplying a gradient by it rounds nothing.
constexpr double kRate = 0.125;

at::Tensor loss_of_step(ToyModel& model, int rank, int step) {
  return model(toy_tokens(rank + 3 * step)).square().sum();
}

// Runs a few steps of gradient descent. In each step, an evaluation runs between backward and the
// update.
void train(TestRank& rank) {
  Sharded sharded(rank);
  Communicator& comm = *rank.communicator();
  int ends = 0;
  sharded.hooks->on_end([&] { ++ends; });
  for (int step = 0; step < kSteps; ++step) {
    const std::string of_step = " of step " + std::to_string(step);
    sharded.drop_gradients();
    const auto loss = loss_of_step(*sharded.model, rank.rank(), step);
    rank.observe("calls of forward" + of_step, take_calls(comm));
    live_bytes::enter(Phase::backward);
    loss.backward();
    rank.observe("calls of backward" + of_step, take_calls(comm));
    rank.observe(
        "units gathered at the peak of backward" + of_step,
        live_bytes::peak()[MemoryClass::gathered] / (sharded.units[0]->layout().padded_numel * 4));
    at::NoGradGuard no_grad;
    (*sharded.model)(toy_tokens(rank.rank()));
    rank.observe("calls of the evaluation" + of_step, take_calls(comm));
    rank.observe("units gathered at the end" + of_step, sharded.gathered());
    rank.observe("passes that have ended by the end" + of_step, ends);
    comm.wait_for_readers();
    for (const auto& unit : sharded.units)
      at::Tensor(unit->shard()).add_(unit->sharded_gradient(), -kRate);
  }
  sharded.observe_gradients(rank);
}

RankRun train_in_one_process(int world_size) {
  return run_oracle([&](TestRank& rank) {
    ToyModel model(3);
    for (int step = 0; step < kSteps; ++step) {
      const auto means =
          mean_gradients(model, world_size, [&](int r) { return loss_of_step(model, r, step); });
      if (step == kSteps - 1) return observe_means(rank, model, means, world_size);
      at::NoGradGuard no_grad;
      for (size_t u = 0; auto& unit : toy_units(model)) {
        for (size_t i = 0; i < unit.parameters.size(); ++i)
          unit.parameters[i].tensor.add_(means[u][i], -kRate);
        ++u;
      }
    }
  });
}

MULTI_RANK_TEST(T4_4_finish, every_training_step_has_the_collectives_of_the_first_step) {
  const RankRun run = run_ranks(world_size(), train);
  for (int step = 0; step < kSteps; ++step) {
    const std::string of_step = " of step " + std::to_string(step);
    expect_on_all_ranks(run, "calls of forward" + of_step, kForward);
    expect_on_all_ranks(run, "calls of backward" + of_step, kBackward);
    expect_on_all_ranks(run, "units gathered at the peak of backward" + of_step, 2);
    expect_on_all_ranks(run, "calls of the evaluation" + of_step, kForward);
    expect_on_all_ranks(run, "units gathered at the end" + of_step, "");
    expect_on_all_ranks(run, "passes that have ended by the end" + of_step, step + 1);
  }
  expect_gradients(run, train_in_one_process(world_size()));
}

// The passes break off before anything was collected, before anything was reduced, in the middle,
// and at the end.
MULTI_RANK_TEST(T4_4_finish, after_an_exception_in_backward_the_next_pass_gives_right_gradients) {
  for (const std::string place :
       {"loss", "head", "blocks2.weight", "blocks1.bias", "blocks0.weight", "embedding"}) {
    SCOPED_TRACE("the gradient of " + place + " throws");
    const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
      Sharded sharded(rank);
      int ends = 0;
      sharded.hooks->on_end([&] { ++ends; });
      break_off_at(place, sharded, rank);
      sharded.drop_gradients();
      const auto loss = plain_loss(*sharded.model, rank.rank());
      rank.observe("calls of on_end() by the end of the forward after the broken pass", ends);
      rank.communicator()->take_log();
      loss.backward();
      const auto calls = take_calls(*rank.communicator());
      rank.observe("calls of the next pass", calls);
      rank.observe("reductions of the next pass", reductions(calls));
      rank.observe("units still gathered", sharded.gathered());
      rank.observe("bytes of full gradients left", live_bytes::now()[MemoryClass::gradients]);
      sharded.observe_gradients(rank);
    });
    expect_broken_off(run);
    // If the gradient of the loss throws, no hook has noticed the pass. Then the forward of this
    // pass counts as one whose loss was dropped, and the next pass may reduce units only at its
    // end.
    const bool began = place != "loss";
    expect_on_all_ranks(run, "calls of on_end() by the end of the forward after the broken pass",
                        began ? 1 : 0);
    expect_on_all_ranks(run, "reductions of the next pass", "blocks2; blocks1; blocks0; root; ");
    if (began) expect_on_all_ranks(run, "calls of the next pass", kBackward);
    expect_on_all_ranks(run, "units still gathered", "");
    expect_on_all_ranks(run, "bytes of full gradients left", 0);
    expect_gradients_of_one_process(run, plain_loss);
  }
}

// The pass breaks off before any unit is reduced, so there are no sharded gradients that the test
// would have to drop.
MULTI_RANK_TEST(T4_4_finish, gradients_collected_by_a_backward_that_threw_are_dropped) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    break_off_at("blocks2.weight", sharded, rank);
    plain_loss(*sharded.model, rank.rank()).backward();
    sharded.observe_gradients(rank);
  });
  expect_broken_off(run);
  expect_gradients_of_one_process(run, plain_loss);
}

// After the broken pass, an evaluation is the first thing that the hooks notice. By then the
// reduction of blocks2 has been waited for, and the reduction of blocks1 is under way.
MULTI_RANK_TEST(T4_4_finish, gradients_that_a_throwing_backward_had_reduced_are_kept) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    int ends = 0;
    sharded.hooks->on_end([&] { ++ends; });
    break_off_at("blocks0.weight", sharded, rank);
    rank.observe("calls of on_end() before the evaluation", ends);
    at::NoGradGuard no_grad;
    (*sharded.model)(toy_tokens(0));
    rank.observe("calls of on_end() after an evaluation, the first sign of what comes next", ends);
    rank.observe("units that have a gradient", sharded.reduced());
    rank.observe("bytes of full gradients left", live_bytes::now()[MemoryClass::gradients]);
    if (sharded.reduced() == "blocks2 ") {
      rank.observe("blocks2", sharded.units[3]->sharded_gradient(),
                   places_of_shard(*sharded.units[3]));
    }
  });
  expect_broken_off(run);
  expect_on_all_ranks(
      run, {{"calls of on_end() before the evaluation", 0},
            {"calls of on_end() after an evaluation, the first sign of what comes next", 1},
            {"units that have a gradient", "blocks2 "},
            {"bytes of full gradients left", 0}});
  expect_shards(run, oracle(world_size(), plain_loss), "blocks2");
}

// Both forwards run before the first backward pass breaks off. So no forward tells the hooks that
// this pass has broken off; only the second backward pass does.
MULTI_RANK_TEST(T4_4_finish, the_next_backward_drops_a_broken_pass_even_without_a_forward) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    int ends = 0;
    sharded.hooks->on_end([&] { ++ends; });
    const auto first = plain_loss(*sharded.model, rank.rank() + 1);
    const auto second = kBlockUsedTwice(*sharded.model, rank.rank());
    break_off_at("blocks1.bias", sharded, rank, first);
    sharded.drop_gradients();
    take_calls(*rank.communicator());
    rank.observe("a pass begins whose forward was over when the pass before it broke off", true);
    second.backward();
    rank.observe("calls of on_end()", ends);
    rank.observe("units reduced in the second pass", reductions(take_calls(*rank.communicator())));
    rank.observe("units still gathered", sharded.gathered());
    sharded.observe_gradients(rank);
  });
  expect_broken_off(run);
  expect_on_all_ranks(run, "calls of on_end()", 2);
  expect_on_all_ranks(run, "units reduced in the second pass", "blocks2; blocks1; blocks0; root; ");
  expect_on_all_ranks(run, "units still gathered", "");
  expect_gradients_of_one_process(run, kBlockUsedTwice);
}

}  // namespace
}  // namespace fsdp
