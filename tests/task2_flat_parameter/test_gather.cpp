#include <memory/live_bytes.h>
#include <testing/call_text.h>

#include "small_unit.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T2_3_unshard);

// Returns a run with the expected values: it has observed each parameter, multiplied by `factor`,
// under the parameter's name.
RankRun values_by_name(const std::vector<std::vector<int64_t>>& shapes, double factor = 1) {
  return run_oracle([&](TestRank& rank) {
    for (const auto& [name, tensor] : make_parameters(shapes))
      rank.observe(name, tensor.detach() * factor);
  });
}

MULTI_RANK_TEST(T2_3_unshard, unshard_issues_one_all_gather_however_often_it_is_called) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_unit(rank);
    unit->unshard_async();
    unit->unshard_async();
    unit->unshard();
    unit->unshard();
    rank.observe("calls", calls(*rank.communicator()));
  });
  const int64_t bytes = padded_numel(world_size()) * 4;
  expect_on_all_ranks(
      run, "calls",
      "all_gather unit " + std::to_string(bytes / world_size() * (world_size() - 1)) + "; ");
}

MULTI_RANK_TEST(T2_3_unshard, state_returns_unsharded_only_when_parameters_can_be_used) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_unit(rank);
    const auto text = [&] {
      switch (unit->state()) {
        case UnitState::sharded:
          return "sharded";
        case UnitState::gathering:
          return "gathering";
        default:
          return "unsharded";
      }
    };
    rank.observe("state at first", text());
    unit->unshard_async();
    rank.observe("state after unshard_async()", text());
    unit->unshard();
    rank.observe("state after unshard()", text());
    unit->unshard_async();
    rank.observe("state after unshard_async() of an unsharded unit", text());
  });
  expect_on_all_ranks(run, "state at first", "sharded");
  expect_on_all_ranks(run, "state after unshard_async()", "gathering");
  expect_on_all_ranks(run, "state after unshard()", "unsharded");
  expect_on_all_ranks(run, "state after unshard_async() of an unsharded unit", "unsharded");
}

MULTI_RANK_TEST(T2_3_unshard, unshard_gathers_the_values_bit_by_bit) {
  // The shapes kShapes come last, because if a timeline is recorded, it shows the last run.
  for (const auto& shapes : {kTinyShapes, kShapes}) {
    const RankRun oracle = values_by_name(shapes);
    const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
      const auto unit = make_unit(rank, shapes);
      unit->unshard();
      observe_parameters(rank, *unit);
    });
    for (size_t i = 0; i < shapes.size(); ++i) {
      const std::string name = "p" + std::to_string(i);
      expect_on_all_ranks(run, name, oracle.at(0, name));
    }
  }
}

MULTI_RANK_TEST(T2_3_unshard, unshard_async_does_not_wait_for_the_all_gather_but_unshard_does) {
  const auto clock = std::make_shared<CountedClock>();
  const RankRun run = run_ranks(
      world_size(),
      [&](TestRank& rank) {
        const auto unit = make_unit(rank);
        unit->unshard_async();
        rank.observe("ns that unshard_async() waited", clock->now());
        unit->unshard();
        rank.observe("ns that unshard() waited", clock->now());
        rank.observe("the unit is unsharded", unit->state() == UnitState::unsharded);
      },
      counted_link(clock));
  expect_on_all_ranks(run, "ns that unshard_async() waited", 0);
  expect_on_all_ranks(run, "ns that unshard() waited", kHop * (world_size() - 1));
  expect_on_all_ranks(run, "the unit is unsharded", true);
}

const std::string kCopies =
    "bytes of copies for the other ranks, which read the input of the all-gather in place if it is "
    "the shard itself and problem 2.2 allocated it by Communicator::empty()";

MULTI_RANK_TEST(T2_3_unshard, other_ranks_all_gather_the_shard_without_a_copy) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_unit(rank);
    const int64_t before = live_bytes::now().total;
    live_bytes::enter(Phase::forward);
    unit->unshard();
    rank.observe(kCopies, live_bytes::peak()[MemoryClass::communication]);
    rank.observe("bytes that unshard() needs at its peak", live_bytes::peak().total - before);
    rank.observe("bytes of the flat tensor, whose views the parameters are",
                 unit->layout().padded_numel * 4);
  });
  const std::string flat = "bytes of the flat tensor, whose views the parameters are";
  EXPECT_GT(run.at(0, flat).get<int64_t>(), 0);
  expect_on_all_ranks(run, kCopies, 0);
  expect_on_each_rank(run, "bytes that unshard() needs at its peak",
                      [&](int r) { return run.at(r, flat); });
}

MULTI_RANK_TEST(T2_3_unshard, unshard_changes_no_version_counter) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_unit(rank);
    const auto versions = [&] {
      int64_t sum = 0;
      for (const auto& [name, tensor] : unit->parameters())
        sum += tensor._version();
      return sum;
    };
    const int64_t before = versions();
    unit->unshard();
    unit->reshard();
    rank.observe("state() is sharded after reshard()", unit->state() == UnitState::sharded);
    unit->unshard();
    rank.observe("changes that autograd saw", versions() - before);
    rank.observe("bytes of the flat tensor", live_bytes_in(MemoryClass::gathered));
  });
  expect_on_all_ranks(run, "state() is sharded after reshard()", true);
  expect_on_all_ranks(run, "bytes of the flat tensor",
                      bytes_only_in(MemoryClass::gathered, padded_numel(world_size()) * 4));
  expect_on_all_ranks(run, "changes that autograd saw", 0);
}

MULTI_RANK_TEST(T2_3_unshard, all_gathers_of_two_units_can_be_pending_at_the_same_time) {
  const RankRun oracle = values_by_name(kShapes);
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto first =
        make_flat_parameter("first", make_parameters({{20}, {5}}), rank.communicator());
    const auto second =
        make_flat_parameter("second", make_parameters(kShapes), rank.communicator());
    first->unshard_async();
    second->unshard_async();
    first->unshard();
    first->reshard();
    second->unshard();
    rank.observe("calls", take_calls(*rank.communicator()));
    observe_parameters(rank, *second);
  });
  expect_on_all_ranks(run, "calls", "all_gather first; all_gather second; ");
  for (const char* name : {"p0", "p1", "p2"})
    expect_on_all_ranks(run, name, oracle.at(0, name));
}

MULTI_RANK_SUITE(T2_4_reshard);

MULTI_RANK_TEST(T2_4_reshard, reshard_frees_the_storage_that_every_view_shares) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_unit(rank);
    const LiveBytes before = live_bytes::now();
    unit->unshard();
    // A view of the parameter, as autograd saves it in forward.
    const at::Tensor view = unit->parameters()[0].tensor.t();
    rank.observe("gathered bytes while unsharded", live_bytes_in(MemoryClass::gathered));
    unit->reshard();
    rank.observe("bytes that reshard() left alive", live_bytes::now().total - before.total);
    rank.observe("bytes under a view that autograd saved",
                 static_cast<int64_t>(view.storage().nbytes()));
    rank.observe("state() is sharded after reshard()", unit->state() == UnitState::sharded);
  });
  expect_on_all_ranks(run, "gathered bytes while unsharded",
                      bytes_only_in(MemoryClass::gathered, padded_numel(world_size()) * 4));
  expect_on_all_ranks(run, "bytes that reshard() left alive", 0);
  expect_on_all_ranks(run, "bytes under a view that autograd saved", 0);
  expect_on_all_ranks(run, "state() is sharded after reshard()", true);
}

MULTI_RANK_TEST(T2_4_reshard, a_sharded_unit_stays_sharded_and_can_be_gathered) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_unit(rank);
    unit->reshard();
    unit->unshard();
    unit->reshard();
    unit->reshard();
    rank.observe("gathered bytes while sharded", live_bytes::now()[MemoryClass::gathered]);
    unit->unshard();
    rank.observe("all-gathers", rank.communicator()->take_log().size());
    rank.observe("gathered bytes while unsharded", live_bytes_in(MemoryClass::gathered));
  });
  expect_on_all_ranks(run, "gathered bytes while sharded", 0);
  expect_on_all_ranks(run, "all-gathers", 2);
  expect_on_all_ranks(run, "gathered bytes while unsharded",
                      bytes_only_in(MemoryClass::gathered, padded_numel(world_size()) * 4));
}

MULTI_RANK_TEST(T2_4_reshard, the_parameters_stay_views_of_one_storage_in_every_state) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_unit(rank);
    const c10::Storage first = unit->parameters()[0].tensor.storage();
    const auto observe_views = [&](const std::string& state) {
      for (const auto& [name, tensor] : unit->parameters()) {
        rank.observe(name + ", " + state + ", is a view of the storage that p0 had at first",
                     tensor.storage().is_alias_of(first));
        rank.observe("offset of " + name + ", " + state, tensor.storage_offset());
      }
    };
    unit->unshard();
    observe_views("unsharded");
    for (const auto& [name, tensor] : unit->parameters())
      rank.observe("bytes from " + name + " back to a multiple of 64",
                   reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 64);
    unit->reshard();
    observe_views("sharded again");
  });
  for (size_t i = 0; i < 3; ++i) {
    const std::string name = "p" + std::to_string(i);
    for (const std::string state : {"unsharded", "sharded again"}) {
      expect_on_all_ranks(
          run, name + ", " + state + ", is a view of the storage that p0 had at first", true);
      expect_on_all_ranks(run, "offset of " + name + ", " + state, kOffsets[i]);
    }
    expect_on_all_ranks(run, "bytes from " + name + " back to a multiple of 64", 0);
  }
}

MULTI_RANK_TEST(T2_4_reshard, reshard_waits_for_a_pending_all_gather) {
  const auto clock = std::make_shared<CountedClock>();
  const RankRun run = run_ranks(
      world_size(),
      [&](TestRank& rank) {
        const auto unit = make_unit(rank);
        unit->unshard_async();
        unit->reshard();
        rank.observe("ns that reshard() waited for the all_gather", clock->now());
        rank.observe("gathered bytes after reshard()", live_bytes::now()[MemoryClass::gathered]);
        unit->unshard();
        rank.observe("value", unit->parameters()[0].tensor.detach());
      },
      counted_link(clock));
  expect_on_all_ranks(run, "ns that reshard() waited for the all_gather",
                      kHop * (world_size() - 1));
  expect_on_all_ranks(run, "gathered bytes after reshard()", 0);
  expect_same_on_all_ranks(run, "value");
}

// Returns the gradients of a loss that uses the weight three times: twice directly, in mm(), and
// once in linear(), for which autograd saves a view. Calls `between_forward_and_backward` after
// forward and before backward.
std::vector<at::Tensor> gradients_with_reshard_between(
    const std::vector<NamedParameter>& p,
    const std::function<void()>& between_forward_and_backward) {
  const at::Tensor& weight = p[0].tensor;  // [m, n]
  const int64_t m = weight.size(0);
  const at::Tensor x = at::arange(2 * m, at::kFloat).view({2, m}).requires_grad_(true);
  const auto y = at::linear(x.mm(weight), weight).tanh().mm(weight).sum() + p[1].tensor.prod();
  between_forward_and_backward();
  std::vector<at::Tensor> inputs{x, weight, p[1].tensor};
  return torch::autograd::grad({y}, inputs);
}

MULTI_RANK_TEST(T2_4_reshard, tensors_saved_in_forward_hold_the_values_again_in_backward) {
  const RankRun oracle = run_oracle([](TestRank& rank) {
    const auto gradients = gradients_with_reshard_between(make_parameters(kShapes), [] {});
    for (size_t i = 0; i < 3; ++i)
      rank.observe("gradient " + std::to_string(i), gradients[i]);
  });
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_unit(rank);
    unit->unshard();
    const auto gradients = gradients_with_reshard_between(unit->parameters(), [&] {
      for (const auto& parameter : unit->parameters()) {
        // The test writes NaN over the gathered values before reshard(). If backward read these old
        // values, gradients would be NaN.
        parameter.tensor.variable_data().fill_(std::nan(""));
      }
      unit->reshard();
      unit->unshard();
    });
    for (size_t i = 0; i < 3; ++i)
      rank.observe("gradient " + std::to_string(i), gradients[i]);
  });
  for (int i = 0; i < 3; ++i) {
    const std::string name = "gradient " + std::to_string(i);
    expect_on_all_ranks(run, name, oracle.at(0, name));
  }
}

MULTI_RANK_TEST(T2_4_reshard, unshard_gathers_what_a_step_has_written_to_the_shards) {
  const std::string when = " after a step that doubles the shards";
  const RankRun oracle = values_by_name(kShapes, 2);
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const auto unit = make_unit(rank);
    unit->unshard();
    unit->reshard();
    rank.communicator()->wait_for_readers();
    unit->shard().mul_(2);
    unit->unshard();
    observe_parameters(rank, *unit, when);
  });
  for (const std::string name : {"p0", "p1", "p2"})
    expect_on_all_ranks(run, name + when, oracle.at(0, name));
}

}  // namespace
}  // namespace fsdp
