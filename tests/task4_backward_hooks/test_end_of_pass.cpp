#include "sharded_model.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T4_4_finish);

TEST_P(T4_4_finish, no_unit_stays_unsharded_and_no_full_gradient_is_left) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.communicator();
    const int64_t before = live_bytes::now().total;
    Sharded sharded(rank);
    int ends = 0;
    sharded.hooks->on_end([&] { ++ends; });
    plain_loss(*sharded.model, rank.rank()).backward();
    rank.observe("all bytes that are left", live_bytes::now().total - before);
    rank.observe("gathered bytes that are left", live_bytes::now()[MemoryClass::gathered]);
    rank.observe("bytes of full gradients that are left",
                 live_bytes::now()[MemoryClass::gradients]);
    rank.observe("calls of on_end()", ends);
    int64_t left = 0;
    for (const auto& p : sharded.model->parameters())
      left += p.grad().defined();
    rank.observe("parameters that have .grad", left);
  });
  expect_on_all_ranks(run, "gathered bytes that are left", 0);
  expect_on_all_ranks(run, "bytes of full gradients that are left", 0);
  // Shards of parameters and of gradients.
  expect_on_all_ranks(run, "all bytes that are left", 2 * toy_shard_bytes(3, world_size()));
  expect_on_all_ranks(run, "calls of on_end()", 1);
  expect_on_all_ranks(run, "parameters that have .grad", 0);
}

// The sentinel. It asks for no exact bytes, so a backward that is wrong in another way passes it.
TEST_P(T4_4_finish, after_backward_a_rank_holds_only_a_part_of_parameters_and_gradients) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.communicator();
    const int64_t before = live_bytes::now().total;
    Sharded sharded(rank);
    plain_loss(*sharded.model, rank.rank()).backward();
    rank.observe("bytes that the rank holds", live_bytes::now().total - before);
  });
  expect_part_of(run, "bytes that the rank holds",
                 2 * toy_shard_bytes(3, world_size()) * world_size());
}

TEST_P(T4_4_finish, full_gradients_of_at_most_two_units_and_the_root_are_alive) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    const auto loss = plain_loss(*sharded.model, rank.rank());
    live_bytes::enter(Phase::backward);
    loss.backward();
    rank.observe("peak of full gradients' bytes",
                 live_bytes::peak(Phase::backward)[MemoryClass::gradients]);
    rank.observe("root", sharded.units[0]->layout().padded_numel * 4);
    rank.observe("block", sharded.units[1]->layout().padded_numel * 4);
  });
  for (int r = 0; r < world_size(); ++r) {
    // A flat gradient counts from when it is made, which may be its unit's first gradient: then the
    // root's, the running block's and the one that is being reduced are alive.
    const auto root = run.at(r, "root").get<int64_t>(), block = run.at(r, "block").get<int64_t>();
    const auto peak = run.at(r, "peak of full gradients' bytes").get<int64_t>();
    EXPECT_LE(peak, root + 2 * block) << "peak of full gradients' bytes on rank " << r;
    EXPECT_GE(peak, root) << "rank " << r;  // else nothing was counted
  }
}

TEST_P(T4_4_finish, a_second_backward_pass_adds_its_gradients) {
  const Loss twice = [](ToyModel& model, int rank) { return plain_loss(model, rank) * 2; };
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    plain_loss(*sharded.model, rank.rank()).backward();
    plain_loss(*sharded.model, rank.rank()).backward();
    sharded.observe_gradients(rank);
  });
  expect_gradients_of_one_process(run, twice);
}

// Dropped outputs, then unused units: a pass must not take over what the one before it noted.
TEST_P(T4_4_finish, a_pass_is_unaffected_by_what_the_previous_one_left_out) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    const auto pass = [&](const Loss& loss) {
      sharded.model->order = {0, 1, 2};
      loss(*sharded.model, rank.rank()).backward();
      return reductions(take_calls(*rank.communicator()));
    };
    pass(kOutputDropped);
    rank.observe("units reduced after a dropped output", pass(plain_loss));
    rank.observe("units reduced without blocks1", pass(kBlockUnused));
    rank.observe("units reduced after that", pass(plain_loss));
  });
  const std::string all = "blocks2; blocks1; blocks0; root; ";
  expect_on_all_ranks(run, "units reduced after a dropped output", all);
  expect_on_all_ranks(run, "units reduced without blocks1", "blocks2; blocks0; blocks1; root; ");
  expect_on_all_ranks(run, "units reduced after that", all);
}

// One pass in which the gradient of `place` throws when it arrives; "loss" is the loss itself.
void break_off_at(const std::string& place, const Sharded& sharded, TestRank& rank) {
  const auto fail = [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("no"); };
  auto loss = plain_loss(*sharded.model, rank.rank());
  at::Tensor tensor = place == "loss" ? loss : sharded.model->named_parameters()[place];
  const auto hook = tensor.register_hook(fail);
  EXPECT_THROW(loss.backward(), std::runtime_error) << place;
  tensor.remove_hook(hook);
}

// Before anything was collected, before anything was reduced, in the middle and at the end.
TEST_P(T4_4_finish, an_exception_in_backward_does_not_spoil_the_next_pass) {
  for (const std::string place :
       {"loss", "head", "blocks2.weight", "blocks1.bias", "blocks0.weight", "embedding"}) {
    SCOPED_TRACE("the gradient of " + place + " throws");
    const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
      Sharded sharded(rank);
      int ends = 0;
      sharded.hooks->on_end([&] { ++ends; });
      break_off_at(place, sharded, rank);
      for (const auto& unit : sharded.units)
        unit->drop_gradient();
      const auto loss = plain_loss(*sharded.model, rank.rank());
      rank.observe("calls of on_end() for the pass that broke off", ends);
      rank.communicator()->take_log();
      loss.backward();
      const auto calls = take_calls(*rank.communicator());
      rank.observe("calls of the next pass", calls);
      rank.observe("reductions of the next pass", reductions(calls));
      rank.observe("units still gathered", sharded.gathered());
      rank.observe("bytes of full gradients that are left",
                   live_bytes::now()[MemoryClass::gradients]);
      sharded.observe_gradients(rank);
    });
    // If the loss itself throws, no unit has noticed a pass: its forward counts as one whose loss
    // was dropped, after which units may wait for the end of the next pass.
    const bool began = place != "loss";
    expect_on_all_ranks(run, "calls of on_end() for the pass that broke off", began ? 1 : 0);
    expect_on_all_ranks(run, "reductions of the next pass", "blocks2; blocks1; blocks0; root; ");
    if (began) expect_on_all_ranks(run, "calls of the next pass", kBackward);
    expect_on_all_ranks(run, "units still gathered", "");
    expect_on_all_ranks(run, "bytes of full gradients that are left", 0);
    expect_gradients_of_one_process(run, plain_loss);
  }
}

// Nothing was reduced when it broke off, so there is nothing to drop.
TEST_P(T4_4_finish, gradients_collected_by_a_broken_pass_are_dropped) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    break_off_at("blocks2.weight", sharded, rank);
    plain_loss(*sharded.model, rank.rank()).backward();
    sharded.observe_gradients(rank);
  });
  expect_gradients_of_one_process(run, plain_loss);
}

}  // namespace
}  // namespace fsdp
