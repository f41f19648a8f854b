#include <backward_hooks.h>
#include <forward_hooks.h>
#include <memory/live_bytes.h>
#include <testing/call_text.h>
#include <testing/expected_shards.h>
#include <testing/multi_rank.h>
#include <testing/provenance.h>
#include <testing/toy_model.h>

namespace fsdp {
namespace {

// A ToyModel whose root and blocks are units, with the hooks of tasks 3 and 4.
struct Sharded {
  explicit Sharded(TestRank& rank, int layers = 3, int frozen_block = -1)
      : model(std::make_shared<ToyModel>(layers)), hooks(std::make_shared<BackwardHooks>()) {
    if (frozen_block >= 0) {
      for (auto& p : model->blocks[static_cast<size_t>(frozen_block)]->parameters()) {
        p.set_requires_grad(false);
      }
    }
    for (auto& [module, name, parameters] : toy_units(*model)) {
      units.push_back(
          std::make_shared<FlatParameter>(name, std::move(parameters), rank.communicator()));
      register_forward_hooks(*module, units.back(), /*reshard_after_forward=*/name != "root");
      hooks->add(*module, units.back());
    }
  }

  std::string gathered() const {
    std::string names;
    for (const auto& unit : units)
      names += unit->holds_storage() ? unit->unit() + " " : "";
    return names;
  }

  void observe_gradients(TestRank& rank) const {
    for (const auto& unit : units) {
      if (unit->sharded_gradient().defined()) {
        rank.observe(unit->unit(), unit->sharded_gradient(), places_of_shard(*unit));
      } else {
        rank.observe(unit->unit(), "no sharded gradient");
      }
    }
  }

  std::shared_ptr<ToyModel> model;
  std::shared_ptr<BackwardHooks> hooks;
  std::vector<std::shared_ptr<FlatParameter>> units;
};

// A loss as one rank computes it, from tokens that differ between ranks.
using Loss = std::function<at::Tensor(ToyModel& model, int rank)>;

at::Tensor plain_loss(ToyModel& model, int rank) {
  return model(toy_tokens(rank)).square().sum();
}

// What one process makes of the ranks' losses, laid out as the units' shards: for each rank its own
// backward from zero, the sum in rank order, the division by W.
RankRun oracle(int world_size, const Loss& loss, const std::function<void(ToyModel&)>& prepare) {
  return run_oracle([&](TestRank& rank) {
    ToyModel model(3);
    prepare(model);
    std::map<std::string, at::Tensor> sums;
    for (int r = 0; r < world_size; ++r) {
      loss(model, r).backward();
      for (auto& item : model.named_parameters()) {
        at::Tensor& gradient = item.value().mutable_grad();
        if (!gradient.defined()) gradient = at::zeros_like(item.value());
        sums[item.key()] = r == 0 ? gradient.clone() : sums[item.key()] + gradient;
        gradient.reset();
      }
    }
    const auto observe_unit = [&](const std::string& unit, const std::vector<std::string>& names) {
      std::vector<at::Tensor> means;
      for (const auto& name : names)
        means.push_back(sums.at(name) / world_size);
      observe_expected_shards(rank, unit, means, world_size);
    };
    observe_unit("root", {"embedding", "head"});
    for (const std::string block : {"blocks0", "blocks1", "blocks2"}) {
      observe_unit(block, {block + ".weight", block + ".bias", block + ".spare"});
    }
  });
}

void expect_gradients_of_one_process(
    const RankRun& run, const Loss& loss,
    const std::function<void(ToyModel&)>& prepare = [](auto&) {}) {
  const RankRun expected = oracle(run.world_size(), loss, prepare);
  for (const std::string unit : {"root", "blocks0", "blocks1", "blocks2"}) {
    for (int r = 0; r < run.world_size(); ++r) {
      expect_on_rank(run, r, unit, expected.at(0, unit + " " + std::to_string(r)));
    }
  }
}

MULTI_RANK_SUITE(T4_1_pre_backward);

TEST_P(T4_1_pre_backward, units_come_back_in_reverse_order_and_one_at_a_time) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    const auto loss = plain_loss(*sharded.model, rank.rank());
    rank.communicator()->take_log();
    live_bytes::enter(Phase::backward);
    loss.backward();
    rank.observe("calls", take_calls(*rank.communicator()));
    rank.observe("peak of gathered bytes",
                 live_bytes::peak(Phase::backward)[MemoryClass::gathered]);
    rank.observe(
        "bytes of the root and one unit",
        (sharded.units[0]->layout().padded_numel + sharded.units[1]->layout().padded_numel) * 4);
  });
  expect_on_all_ranks(run, "calls",
                      "all_gather blocks2; reduce_scatter blocks2; "
                      "all_gather blocks1; reduce_scatter blocks1; "
                      "all_gather blocks0; reduce_scatter blocks0; reduce_scatter root; ");
  for (int r = 0; r < world_size(); ++r)
    expect_on_rank(run, r, "peak of gathered bytes", run.at(r, "bytes of the root and one unit"));
}

TEST_P(T4_1_pre_backward, a_unit_comes_back_also_when_its_output_is_changed_in_place) {
  const Loss loss = [](ToyModel& model, int rank) {
    auto x = at::embedding(model.embedding, toy_tokens(rank));
    auto y = (*model.blocks[0])(x);
    y = y.mul_(2);
    return y.sum() * model.head.sum();
  };
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    Sharded sharded(rank);
    // The root's forward is not called: what it does for its parameters is done by hand.
    sharded.units[0]->unshard();
    loss(*sharded.model, rank.rank()).backward();
    sharded.observe_gradients(rank);
  });
  expect_gradients_of_one_process(run, loss);
}

MULTI_RANK_SUITE(T4_2_reduce_scatter);

TEST_P(T4_2_reduce_scatter, gradients_are_the_mean_of_the_ranks_bit_by_bit) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    plain_loss(*sharded.model, rank.rank()).backward();
    sharded.observe_gradients(rank);
  });
  expect_gradients_of_one_process(run, plain_loss);
}

// A module whose weight gets the gradient that is sent into its output, in each element.
struct Sender : Module {
  Sender() { weight = register_parameter("weight", at::zeros({48})); }
  torch::Tensor forward(torch::Tensor x) override { return x + weight; }
  at::Tensor weight;  // [48]
};

TEST_P(T4_2_reduce_scatter, every_rank_contributes_exactly_once) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sender sender;
    auto unit = std::make_shared<FlatParameter>(
        "sender", std::vector<NamedParameter>{{"weight", sender.weight}}, rank.communicator());
    auto hooks = std::make_shared<BackwardHooks>();
    register_forward_hooks(sender, unit, true);
    hooks->add(sender, unit);
    const auto y = sender(at::zeros({48}).requires_grad_(true));
    const auto share = static_cast<double>(provenance::gradient(rank.rank(), rank.world_size()));
    y.backward(at::full_like(y, share));
    rank.observe("gradient", unit->sharded_gradient(), places_of_shard(*unit));
  });
  expect_mean_over_ranks(run, "gradient");
}

MULTI_RANK_SUITE(T4_3_exactly_once);

std::string reductions(const std::string& calls) {
  std::string result;
  size_t at = 0;
  while (at < calls.size()) {
    const size_t end = calls.find("; ", at);
    if (calls.compare(at, 14, "reduce_scatter") == 0)
      result += calls.substr(at + 15, end - at - 13);
    at = end + 2;
  }
  return result;
}

const Loss kSpareUnused = [](ToyModel& model, int rank) {
  model.blocks[1]->use_spare = false;
  return plain_loss(model, rank);
};
const Loss kSpareUnusedOnOneRank = [](ToyModel& model, int rank) {
  model.blocks[1]->use_spare = rank != 0;
  return plain_loss(model, rank);
};
const Loss kBlockUnused = [](ToyModel& model, int rank) {
  model.order = {0, 2};
  return plain_loss(model, rank);
};
const Loss kBlockUsedTwice = [](ToyModel& model, int rank) {
  model.order = {0, 1, 0, 2};
  return plain_loss(model, rank);
};
const Loss kTwoForwards = [](ToyModel& model, int rank) {
  const auto one = plain_loss(model, rank);
  return one + plain_loss(model, rank + 3);
};
const Loss kOutputDropped = [](ToyModel& model, int rank) {
  (*model.blocks[1])(at::ones({1, 7}).requires_grad_(true));
  return plain_loss(model, rank);
};

void expect_one_reduction_each(int world_size, const Loss& loss, const std::string& expected,
                               int frozen_block = -1, const std::string& or_this = "") {
  const RankRun run = run_ranks(world_size, [&](TestRank& rank) {
    Sharded sharded(rank, 3, frozen_block);
    loss(*sharded.model, rank.rank()).backward();
    rank.observe("units reduced, in order", reductions(take_calls(*rank.communicator())));
    sharded.observe_gradients(rank);
    rank.observe("units still gathered", sharded.gathered());
  });
  const std::string order = "units reduced, in order";
  expect_on_all_ranks(run, order, run.at(0, order) == or_this ? or_this : expected);
  expect_on_all_ranks(run, "units still gathered", "");
  if (frozen_block < 0) expect_gradients_of_one_process(run, loss);
}

TEST_P(T4_3_exactly_once, with_a_parameter_that_is_not_used) {
  expect_one_reduction_each(world_size(), kSpareUnused, "blocks2; blocks1; blocks0; root; ");
}

TEST_P(T4_3_exactly_once, with_a_parameter_that_one_rank_does_not_use) {
  expect_one_reduction_each(world_size(), kSpareUnusedOnOneRank,
                            "blocks2; blocks1; blocks0; root; ");
}

TEST_P(T4_3_exactly_once, with_a_unit_that_is_not_used) {
  expect_one_reduction_each(world_size(), kBlockUnused, "blocks2; blocks0; blocks1; root; ");
}

TEST_P(T4_3_exactly_once, with_a_unit_that_is_used_twice) {
  expect_one_reduction_each(world_size(), kBlockUsedTwice, "blocks2; blocks1; blocks0; root; ");
}

TEST_P(T4_3_exactly_once, with_two_forwards_before_one_backward) {
  expect_one_reduction_each(world_size(), kTwoForwards, "blocks2; blocks1; blocks0; root; ");
}

TEST_P(T4_3_exactly_once, with_an_output_that_is_not_part_of_the_loss) {
  // Whether a call that can no longer come back is waited for until the end of the pass is open.
  expect_one_reduction_each(world_size(), kOutputDropped, "blocks2; blocks0; blocks1; root; ", -1,
                            "blocks2; blocks1; blocks0; root; ");
}

TEST_P(T4_3_exactly_once, with_a_frozen_unit) {
  expect_one_reduction_each(world_size(), plain_loss, "blocks2; blocks0; root; ", 1);
}

// The constant needs no gradient, so this call of the block gives no sign that it is over; it comes
// first, so that its gradient comes last, when the other call's sign has been given.
TEST_P(T4_3_exactly_once, no_gradient_is_lost_when_one_of_two_inputs_needs_none) {
  const Loss loss = [](ToyModel& model, int rank) {
    const auto on_constant = (*model.blocks[1])(at::ones({1, 7}));
    return plain_loss(model, rank) + on_constant.sum();
  };
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    Sharded sharded(rank);
    loss(*sharded.model, rank.rank()).backward();
    sharded.observe_gradients(rank);
    rank.observe("units still gathered", sharded.gathered());
  });
  expect_on_all_ranks(run, "units still gathered", "");
  expect_gradients_of_one_process(run, loss);
}

MULTI_RANK_SUITE(T4_4_finish);

TEST_P(T4_4_finish, nothing_is_gathered_and_no_full_gradient_is_left) {
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

TEST_P(T4_4_finish, at_most_two_units_gradients_and_the_roots_are_alive) {
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
TEST_P(T4_4_finish, a_pass_is_as_any_other_whatever_the_one_before_it_left_out) {
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

TEST_P(T4_4_finish, an_exception_after_a_pass_has_begun_does_not_spoil_the_next_one) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    auto head = sharded.model->head;
    const auto hook =
        head.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("no"); });
    EXPECT_THROW(plain_loss(*sharded.model, rank.rank()).backward(), std::runtime_error);
    head.remove_hook(hook);
    plain_loss(*sharded.model, rank.rank()).backward();
    rank.observe("gathered", sharded.gathered());
    sharded.observe_gradients(rank);
  });
  expect_on_all_ranks(run, "gathered", "");
  expect_gradients_of_one_process(run, plain_loss);
}

TEST_P(T4_4_finish, an_exception_in_backward_does_not_spoil_the_next_pass) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Sharded sharded(rank);
    {
      auto loss = plain_loss(*sharded.model, rank.rank());
      loss.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("no"); });
      EXPECT_THROW(loss.backward(), std::runtime_error);
    }
    plain_loss(*sharded.model, rank.rank()).backward();
    sharded.observe_gradients(rank);
  });
  expect_gradients_of_one_process(run, plain_loss);
}

}  // namespace
}  // namespace fsdp
