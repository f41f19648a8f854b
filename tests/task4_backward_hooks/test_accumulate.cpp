#include "sharded_model.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T4_5_accumulate);

MULTI_RANK_TEST(T4_5_accumulate, without_sync_backward_reduces_nothing_until_sync_gradients) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank, 3, /*frozen_block=*/1);
    int ends = 0;
    sharded.hooks->on_end([&] { ++ends; });
    sharded.hooks->set_requires_gradient_sync(false);
    plain_loss(*sharded.model, rank.rank()).backward();
    rank.observe("units reduced in the pass", reductions(take_calls(*rank.communicator())));
    rank.observe("units gathered after the pass", sharded.gathered());
    rank.observe("calls of on_end() in the pass", ends);
    std::string kept;
    for (const auto& parameter : sharded.model->named_parameters())
      kept += parameter->grad().defined() ? parameter.key() + " " : "";
    rank.observe("parameters that keep their gradient", kept);

    sharded.hooks->sync_gradients();
    rank.observe("units reduced by sync_gradients()", reductions(take_calls(*rank.communicator())));
    rank.observe("bytes of full gradients that are left",
                 live_bytes::now()[MemoryClass::gradients]);
    rank.observe("calls of on_end() after sync_gradients()", ends);
    sharded.drop_gradients();
    plain_loss(*sharded.model, rank.rank()).backward();
    rank.observe("units reduced in the next pass", reductions(take_calls(*rank.communicator())));
  });
  expect_on_all_ranks(run, "units reduced in the pass", "");
  expect_on_all_ranks(run, "units gathered after the pass", "");
  expect_on_all_ranks(run, "calls of on_end() in the pass", 1);
  expect_on_all_ranks(run, "parameters that keep their gradient",
                      "embedding head blocks0.weight blocks0.bias blocks0.spare blocks2.weight "
                      "blocks2.bias blocks2.spare ");
  expect_on_all_ranks(run, "units reduced by sync_gradients()", "blocks2; blocks0; root; ");
  expect_on_all_ranks(run, "bytes of full gradients that are left", 0);
  expect_on_all_ranks(run, "calls of on_end() after sync_gradients()", 2);
  expect_on_all_ranks(run, "units reduced in the next pass", "");
}

MULTI_RANK_TEST(T4_5_accumulate, switching_off_the_sync_of_one_model_does_not_affect_another) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const Sharded off(rank), on(rank);
    off.hooks->set_requires_gradient_sync(false);
    take_calls(*rank.communicator());
    plain_loss(*on.model, rank.rank()).backward();
    rank.observe("units reduced by a model while the reduction of another one is off",
                 reductions(take_calls(*rank.communicator())));
  });
  expect_on_all_ranks(run, "units reduced by a model while the reduction of another one is off",
                      "blocks2; blocks1; blocks0; root; ");
}

// A unit that is never sharded, and that records which of its functions are called.
struct NotingUnit : FlatParameter {
  NotingUnit(std::vector<NamedParameter> parameters, std::string& notes) : notes(notes) {
    parameters_ = std::move(parameters);
  }
  bool trainable() const override { return true; }
  void unshard_async() override {}
  void unshard() override {}
  void reshard() override {}
  void mark_gradient_ready(size_t index) override { notes += "collect "; }
  bool has_gradient() const override { return false; }
  void reduce_gradient() override { notes += "reduce "; }
  void wait_for_reduction() override {}
  void discard_unreduced_gradients() override {}
  void widen_gradients() override { notes += "widen "; }
  std::string& notes;
};

MULTI_RANK_TEST(T4_5_accumulate, without_gradient_sync_the_collected_gradients_are_widened) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    std::string notes;
    const auto block = std::make_shared<ToyBlock>(7, 1);
    block->use_spare = false;
    const auto hooks = make_backward_hooks();
    hooks->add(*block, std::make_shared<NotingUnit>(distinct_parameters(*block), notes));
    for (const std::string pass : {"first", "second"}) {
      hooks->set_requires_gradient_sync(false);
      notes.clear();
      (*block)(at::ones({2, 7}).requires_grad_()).sum().backward();
      const size_t collected = notes.rfind("collect"), widened = notes.rfind("widen");
      rank.observe("the " + pass + " pass collects", collected != std::string::npos);
      rank.observe("the " + pass + " pass widens what it has collected",
                   widened != std::string::npos && widened > collected);
      rank.observe("the " + pass + " pass reduces", notes.find("reduce") != std::string::npos);
    }
    hooks->set_requires_gradient_sync(true);
    notes.clear();
    (*block)(at::ones({2, 7}).requires_grad_()).sum().backward();
    rank.observe("the last pass reduces", notes.find("reduce") != std::string::npos);
  });
  for (const std::string pass : {"first", "second"}) {
    expect_on_all_ranks(run, "the " + pass + " pass collects", true);
    expect_on_all_ranks(run, "the " + pass + " pass widens what it has collected", true);
    expect_on_all_ranks(run, "the " + pass + " pass reduces", false);
  }
  expect_on_all_ranks(run, "the last pass reduces", true);
}

MULTI_RANK_TEST(T4_5_accumulate, without_gradient_sync_backward_unshards_one_block_at_a_time) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    sharded.hooks->set_requires_gradient_sync(false);
    const auto seen = look_at_arrivals(sharded, [&] { return sharded.gathered(); });
    plain_loss(*sharded.model, rank.rank()).backward();
    rank.observe("units gathered as each gradient arrives", *seen);
  });
  expect_on_all_ranks(run, "units gathered as each gradient arrives",
                      "root blocks2 | root blocks1 | root blocks0 | ");
}

// In this test, a gradient arrives after the backward of its module's call has ended. That is no
// error, because the unit is not reduced in this pass.
MULTI_RANK_TEST(T4_5_accumulate, sync_gradients_adds_up_the_passes_before_it_and_divides_once) {
  const Loss both = [](ToyModel& model, int rank) {
    model.blocks[0]->use_spare = false;
    const auto early = model.blocks[0]->spare.sum();
    return early + plain_loss(model, rank) + plain_loss(model, rank + 5);
  };
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    sharded.hooks->set_requires_gradient_sync(false);
    sharded.units[1]->unshard();
    sharded.model->blocks[0]->use_spare = false;
    const auto early = sharded.model->blocks[0]->spare.sum();
    (plain_loss(*sharded.model, rank.rank()) + early).backward();
    plain_loss(*sharded.model, rank.rank() + 5).backward();
    sharded.hooks->sync_gradients();
    sharded.observe_gradients(rank);
  });
  expect_gradients_of_one_process(run, both);
}

MULTI_RANK_TEST(T4_5_accumulate, gradient_sync_can_be_switched_on_for_the_last_pass) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    sharded.hooks->set_requires_gradient_sync(false);
    plain_loss(*sharded.model, rank.rank()).backward();
    sharded.hooks->set_requires_gradient_sync(true);
    take_calls(*rank.communicator());
    plain_loss(*sharded.model, rank.rank() + 5).backward();
    rank.observe("units reduced in the last pass", reductions(take_calls(*rank.communicator())));
    sharded.observe_gradients(rank);
  });
  expect_on_all_ranks(run, "units reduced in the last pass", "blocks2; blocks1; blocks0; root; ");
  expect_gradients_of_one_process(run, [](ToyModel& model, int rank) {
    return plain_loss(model, rank) + plain_loss(model, rank + 5);
  });
}

MULTI_RANK_TEST(T4_5_accumulate, without_gradient_sync_a_failed_backward_drops_earlier_gradients) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    sharded.hooks->set_requires_gradient_sync(false);
    plain_loss(*sharded.model, rank.rank() + 5).backward();
    break_off_at("embedding", sharded, rank);
    plain_loss(*sharded.model, rank.rank()).backward();
    sharded.hooks->sync_gradients();
    sharded.observe_gradients(rank);
  });
  expect_broken_off(run);
  expect_gradients_of_one_process(run, plain_loss);
}

MULTI_RANK_TEST(T4_5_accumulate, sync_gradients_after_a_failed_pass_reduces_nothing_of_it) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    sharded.hooks->set_requires_gradient_sync(false);
    break_off_at("embedding", sharded, rank);
    sharded.hooks->sync_gradients();
    sharded.observe_gradients(rank);
  });
  expect_broken_off(run);
  expect_gradients_of_one_process(
      run, [](ToyModel& model, int rank) { return 0 * plain_loss(model, rank); });
}

}  // namespace
}  // namespace fsdp
