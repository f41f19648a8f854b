#include <memory/live_bytes.h>
#include <testing/counted_clock.h>
#include <testing/expected_shards.h>

#include "small_unit.h"

namespace fsdp {
namespace {

int64_t storage_bytes(const FlatParameter& unit) {
  return static_cast<int64_t>(unit.parameters()[0].tensor.storage().nbytes());
}

MULTI_RANK_SUITE_ON(T2_1_layout, 1, 2, 3, 4, 8);

TEST_P(T2_1_layout, every_parameter_starts_at_a_multiple_of_64_bytes) {
  run_ranks(1, [](TestRank&) {
    const FlatLayout layout = flat_layout({35, 3, 24, 1}, world_size());
    for (size_t i = 0; i < layout.offsets.size(); ++i) {
      EXPECT_EQ(layout.offsets[i] * 4 % 64, 0)
          << "parameter " << i << " starts at byte " << layout.offsets[i] * 4;
    }
    EXPECT_EQ(layout.offsets, (std::vector<int64_t>{0, 48, 64, 96}));
  });
}

// Of one or more parameters, aligned or not.
std::vector<std::vector<int64_t>> sizes_of_units() {
  return {{1}, {16, 16}, {35, 3, 24}, {test_choice<int64_t>("a large unit", {1000, 999, 4711})}};
}

TEST_P(T2_1_layout, padding_makes_every_shard_a_multiple_of_64_bytes) {
  run_ranks(1, [](TestRank&) {
    for (const auto& numels : sizes_of_units()) {
      const FlatLayout layout = flat_layout(numels, world_size());
      EXPECT_EQ(layout.padded_numel % (16 * world_size()), 0)
          << layout.padded_numel << " elements do not give " << world_size()
          << " shards of whole multiples of 64 bytes";
      EXPECT_LT(layout.padded_numel - layout.offsets.back() - numels.back(),
                16 * world_size() + 16);
    }
  });
}

TEST_P(T2_1_layout, the_last_parameter_ends_inside_the_flat_tensor) {
  run_ranks(1, [](TestRank&) {
    for (const auto& numels : sizes_of_units()) {
      const FlatLayout layout = flat_layout(numels, world_size());
      const int64_t lost = layout.offsets.back() + numels.back() - layout.padded_numel;
      EXPECT_LE(lost, 0) << "the last " << lost << " elements of the unit are in no rank's shard";
    }
  });
}

MULTI_RANK_SUITE_ON(T2_2_shard, 1, 2, 3, 4, 8);

TEST_P(T2_2_shard, the_shards_in_rank_order_make_up_the_flat_tensor) {
  const RankRun oracle = run_oracle([](TestRank& rank) {
    std::vector<at::Tensor> parameters;
    for (const auto& [name, tensor] : make_parameters(kShapes))
      parameters.push_back(tensor.detach());
    observe_expected_shards(rank, "shard", parameters, world_size());
  });
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const FlatParameter unit = make_unit(rank);
    // Padding holds NaN, or zero.
    rank.observe("shard", unit.shard().nan_to_num(0), places_of_shard(unit));
  });
  for (int r = 0; r < world_size(); ++r) {
    expect_on_rank(run, r, "shard", oracle.at(0, "shard " + std::to_string(r)));
  }
}

TEST_P(T2_2_shard, only_the_shard_stays_in_memory) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.communicator();
    const int64_t before = live_bytes::now().total;
    const FlatParameter unit = make_unit(rank);
    rank.observe("live bytes after sharding", live_bytes::now().total - before);
    rank.observe("shard bytes", live_bytes::now()[MemoryClass::shards]);
    rank.observe("bytes of storage under the parameters", storage_bytes(unit));
  });
  const int64_t shard = padded_numel(world_size()) / world_size() * 4;
  expect_on_all_ranks(run, "live bytes after sharding", shard);
  expect_on_all_ranks(run, "shard bytes", shard);
  expect_on_all_ranks(run, "bytes of storage under the parameters", 0);
}

// The sentinel. It asks for no exact bytes, so a unit that is sharded in a wrong way passes it.
TEST_P(T2_2_shard, a_rank_keeps_only_a_part_of_the_unit) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.communicator();
    const int64_t before = live_bytes::now().total;
    const FlatParameter unit = make_unit(rank);
    rank.observe("bytes that the rank keeps", live_bytes::now().total - before);
  });
  expect_part_of(run, "bytes that the rank keeps", padded_numel(world_size()) * 4);
}

TEST_P(T2_2_shard, a_unit_may_have_fewer_elements_than_ranks) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    FlatParameter unit = make_unit(rank, {{1}});
    const at::Tensor values = unit.shard().nan_to_num(0);
    rank.observe("values", values.count_nonzero().item<int64_t>());
    unit.unshard();
    rank.observe("value", unit.parameters()[0].tensor.detach());
  });
  for (int r = 0; r < world_size(); ++r)
    expect_on_rank(run, r, "values", r == 0 ? 1 : 0);
  expect_same_on_all_ranks(run, "value");
}

TEST_P(T2_2_shard, the_parameters_stay_the_same_variables) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    auto parameters = make_parameters(kShapes);
    const at::Tensor held_by_a_module = parameters[0].tensor;
    FlatParameter unit("unit", parameters, rank.communicator());
    unit.unshard();
    rank.observe("the module's tensor is the unit's parameter",
                 held_by_a_module.is_same(unit.parameters()[0].tensor));
    rank.observe("leaf", held_by_a_module.is_leaf() && held_by_a_module.requires_grad());
    rank.observe("sizes", held_by_a_module.sizes().vec());
  });
  expect_on_all_ranks(run, "the module's tensor is the unit's parameter", true);
  expect_on_all_ranks(run, "leaf", true);
  expect_on_all_ranks(run, "sizes", kShapes[0]);
}

TEST_P(T2_2_shard, a_parameter_of_another_dtype_is_refused_by_name) {
  run_ranks(world_size(), [](TestRank& rank) {
    const std::vector<NamedParameter> parameters{{"ids", at::zeros({3}, at::kDouble)}};
    try {
      FlatParameter unit("layers.0", parameters, rank.communicator());
      FAIL() << "nothing was thrown";
    } catch (const std::invalid_argument& error) {
      EXPECT_STREQ(error.what(), "unit layers.0: parameter ids is Double, not Float");
    }
  });
}

MULTI_RANK_SUITE(T2_3_unshard);

TEST_P(T2_3_unshard, gathers_the_values_bit_by_bit) {
  const RankRun oracle = run_oracle([](TestRank& rank) {
    for (const auto& [name, tensor] : make_parameters(kShapes))
      rank.observe(name, tensor.detach());
  });
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    FlatParameter unit = make_unit(rank);
    unit.unshard();
    for (const auto& [name, tensor] : unit.parameters())
      rank.observe(name, tensor.detach());
  });
  for (const char* name : {"p0", "p1", "p2"})
    expect_on_all_ranks(run, name, oracle.at(0, name));
}

TEST_P(T2_3_unshard, issues_one_all_gather_however_often_it_is_called) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    FlatParameter unit = make_unit(rank);
    unit.unshard_async();
    unit.unshard_async();
    unit.unshard();
    unit.unshard();
    rank.observe("calls", calls(*rank.communicator()));
  });
  const int64_t bytes = padded_numel(world_size()) * 4;
  expect_on_all_ranks(
      run, "calls",
      "all_gather unit " + std::to_string(bytes / world_size() * (world_size() - 1)) + "; ");
}

TEST_P(T2_3_unshard, the_state_says_whether_the_parameters_can_be_used) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    FlatParameter unit = make_unit(rank);
    const auto text = [&] {
      switch (unit.state()) {
        case UnitState::sharded:
          return "sharded";
        case UnitState::gathering:
          return "gathering";
        default:
          return "unsharded";
      }
    };
    rank.observe("state at first", text());
    unit.unshard_async();
    rank.observe("state after unshard_async()", text());
    unit.unshard();
    rank.observe("state after unshard()", text());
    unit.unshard_async();
    rank.observe("state after unshard_async() of an unsharded unit", text());
  });
  expect_on_all_ranks(run, "state at first", "sharded");
  expect_on_all_ranks(run, "state after unshard_async()", "gathering");
  expect_on_all_ranks(run, "state after unshard()", "unsharded");
  expect_on_all_ranks(run, "state after unshard_async() of an unsharded unit", "unsharded");
}

TEST_P(T2_3_unshard, autograd_sees_no_change) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    FlatParameter unit = make_unit(rank);
    unit.unshard();
    const auto version = unit.parameters()[0].tensor._version();
    unit.reshard();
    unit.unshard();
    rank.observe("changes that autograd saw", unit.parameters()[0].tensor._version() - version);
  });
  expect_on_all_ranks(run, "changes that autograd saw", 0);
}

MULTI_RANK_SUITE(T2_4_reshard);

TEST_P(T2_4_reshard, frees_the_storage_that_every_view_shares) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    FlatParameter unit = make_unit(rank);
    const LiveBytes before = live_bytes::now();
    unit.unshard();
    const at::Tensor view = unit.parameters()[0].tensor.t();  // as autograd saves it
    rank.observe("gathered bytes while unsharded", live_bytes::now()[MemoryClass::gathered]);
    unit.reshard();
    rank.observe("bytes that reshard() left alive", live_bytes::now().total - before.total);
    rank.observe("bytes under a view that autograd saved",
                 static_cast<int64_t>(view.storage().nbytes()));
    rank.observe("state() is sharded after reshard()", unit.state() == UnitState::sharded);
  });
  expect_on_all_ranks(run, "gathered bytes while unsharded", padded_numel(world_size()) * 4);
  expect_on_all_ranks(run, "bytes that reshard() left alive", 0);
  expect_on_all_ranks(run, "bytes under a view that autograd saved", 0);
  expect_on_all_ranks(run, "state() is sharded after reshard()", true);
}

// The weight is used as it is (mm), through a saved view (linear) and twice.
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

TEST_P(T2_4_reshard, tensors_saved_in_forward_hold_the_values_again_in_backward) {
  const RankRun oracle = run_oracle([](TestRank& rank) {
    const auto gradients = gradients_with_reshard_between(make_parameters(kShapes), [] {});
    for (size_t i = 0; i < 3; ++i)
      rank.observe("gradient " + std::to_string(i), gradients[i]);
  });
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    FlatParameter unit = make_unit(rank);
    unit.unshard();
    const auto gradients = gradients_with_reshard_between(unit.parameters(), [&] {
      for (const auto& parameter : unit.parameters()) {
        parameter.tensor.variable_data().fill_(std::nan(""));  // what a stale copy would show
      }
      unit.reshard();
      unit.unshard();
    });
    for (size_t i = 0; i < 3; ++i)
      rank.observe("gradient " + std::to_string(i), gradients[i]);
  });
  for (int i = 0; i < 3; ++i) {
    const std::string name = "gradient " + std::to_string(i);
    expect_on_all_ranks(run, name, oracle.at(0, name));
  }
}

// On a link whose time is counted, not measured: there an all-gather takes one hop to each other
// rank.
TEST_P(T2_4_reshard, waits_for_a_pending_all_gather) {
  constexpr int64_t kHop = 1'000;
  const auto clock = std::make_shared<CountedClock>();
  RunOptions options;
  options.link = Link{std::chrono::nanoseconds(kHop), 1e18};
  options.clock = clock;
  const RankRun run = run_ranks(
      world_size(),
      [&](TestRank& rank) {
        FlatParameter unit = make_unit(rank);
        const int64_t start = clock->now();
        unit.unshard_async();
        unit.reshard();
        rank.observe("ns that reshard() waited for the all_gather", clock->now() - start);
        rank.observe("gathered bytes after reshard()", live_bytes::now()[MemoryClass::gathered]);
        unit.unshard();
        rank.observe("value", unit.parameters()[0].tensor.detach());
      },
      options);
  expect_on_all_ranks(run, "ns that reshard() waited for the all_gather",
                      kHop * (world_size() - 1));
  expect_on_all_ranks(run, "gathered bytes after reshard()", 0);
  expect_same_on_all_ranks(run, "value");
}

}  // namespace
}  // namespace fsdp
