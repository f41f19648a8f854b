#include <memory/live_bytes.h>
#include <memory/poison.h>
#include <testing/expected_shards.h>

#include <optional>
#include <set>

#include "large_units.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE_ON(T2_1_layout, 1, 2, 3, 4, 8);

struct Numels {
  std::vector<int64_t> numels;
  std::vector<int64_t> offsets;
};

// Returns units of one or more parameters: for each unit, the number of elements of each parameter,
// and the offsets that flat_layout() must return. Some parameters need padding, some are empty, and
// one has more than 2^31 elements.
std::vector<Numels> units() {
  const auto large = test_choice<int64_t>("a large unit", {1000, 999, 4711});
  return {{{1}, {0}},
          {{16, 16, 16}, {0, 16, 32}},
          {{35, 3, 24, 1}, {0, 48, 64, 96}},
          {{0, 17, 0, 3}, {0, 0, 32, 32}},
          {{large, 15}, {0, round_up(large, 16)}},
          {{3'000'000'000, 5}, {0, 3'000'000'000}}};
}

// Computes the layout of each unit of units() on a rank. Calls `expect` with the unit, which has
// the expected layout, and the layout that flat_layout() returned.
void expect_layouts(int world_size,
                    const std::function<void(const Numels& unit, const FlatLayout&)>& expect) {
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    for (const Numels& unit : units()) {
      const FlatLayout layout = flat_layout(unit.numels, world_size);
      const std::string of = " of " + nlohmann::json(unit.numels).dump();
      rank.observe("offsets" + of, layout.offsets);
      rank.observe("padded_numel" + of, layout.padded_numel);
    }
  });
  for (const Numels& unit : units()) {
    const std::string of = " of " + nlohmann::json(unit.numels).dump();
    const auto offsets = run.at(0, "offsets" + of).get<std::vector<int64_t>>();
    ASSERT_EQ(offsets.size(), unit.numels.size()) << "parameters have an offset";
    expect(unit, {offsets, run.at(0, "padded_numel" + of)});
  }
}

MULTI_RANK_TEST(T2_1_layout, every_parameter_starts_at_a_multiple_of_64_bytes) {
  expect_layouts(world_size(), [](const Numels&, const FlatLayout& layout) {
    for (size_t i = 0; i < layout.offsets.size(); ++i)
      EXPECT_EQ(layout.offsets[i] * 4 % 64, 0)
          << "parameter " << i << " starts at byte " << layout.offsets[i] * 4;
  });
}

MULTI_RANK_TEST(T2_1_layout, every_parameter_starts_at_the_next_multiple_of_64_bytes) {
  expect_layouts(world_size(), [](const Numels& unit, const FlatLayout& layout) {
    EXPECT_EQ(layout.offsets, unit.offsets)
        << "of parameters of " << at::IntArrayRef(unit.numels) << " elements";
  });
}

MULTI_RANK_TEST(T2_1_layout, padding_makes_every_shard_a_multiple_of_64_bytes) {
  expect_layouts(world_size(), [](const Numels&, const FlatLayout& layout) {
    EXPECT_EQ(layout.padded_numel % (16 * world_size()), 0)
        << layout.padded_numel << " elements do not give " << world_size()
        << " shards of whole multiples of 64 bytes";
  });
}

MULTI_RANK_TEST(T2_1_layout, the_layout_ends_the_last_parameter_inside_the_flat_tensor) {
  expect_layouts(world_size(), [](const Numels& unit, const FlatLayout& layout) {
    const int64_t lost = unit.offsets.back() + unit.numels.back() - layout.padded_numel;
    EXPECT_LE(lost, 0) << "the last " << lost << " elements of the unit are in no rank's shard";
  });
}

MULTI_RANK_TEST(T2_1_layout, the_layout_pads_the_end_of_the_flat_tensor_as_little_as_possible) {
  expect_layouts(world_size(), [](const Numels& unit, const FlatLayout& layout) {
    const int64_t end = unit.offsets.back() + unit.numels.back();
    EXPECT_LE(layout.padded_numel, round_up(end, int64_t{16} * world_size()))
        << "more than needed for " << end << " elements";
  });
}

MULTI_RANK_SUITE_ON(T2_2_shard, 1, 2, 3, 4, 8);

MULTI_RANK_TEST(T2_2_shard, make_flat_parameter_throws_and_names_a_parameter_that_is_not_fp32) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    auto parameters = make_parameters(kShapes);
    parameters.push_back({"ids", at::zeros({3}, at::kDouble)});
    rank.observe("what the constructor throws", thrown_by([&] {
                   make_flat_parameter("layers.0", parameters, rank.communicator());
                 }));
  });
  expect_error(run, "what the constructor throws", {"std::invalid_argument", "layers.0", "ids"});
}

// Makes a unit of parameters that are on the meta device. Notes which parameters
// make_flat_parameter() materializes.
class MetaUnit {
 public:
  explicit MetaUnit(TestRank& rank) : values_(values_of(make_parameters(kShapes))) {
    for (size_t i = 0; i < 3; ++i)
      parameters_.push_back({"p" + std::to_string(i), at::empty(kShapes[i], at::kMeta)});
    unit = make_flat_parameter("unit", parameters_, rank.communicator(),
                               [&](const at::Tensor& parameter) { return materialize(parameter); });
  }

  std::shared_ptr<FlatParameter> unit;
  std::multiset<std::string> asked;  // names of the parameters with which materialize() was called
  // The largest number of results of materialize() that were still alive at a later call.
  int64_t others_alive{};

 private:
  at::Tensor materialize(const at::Tensor& parameter) {
    int64_t alive = 0;
    for (const auto& given : given_)
      alive += given.expired() ? 0 : 1;
    others_alive = std::max(others_alive, alive);
    for (size_t i = 0; i < 3; ++i) {
      if (!parameter.is_alias_of(parameters_[i].tensor)) continue;
      asked.insert(parameters_[i].name);
      // A materialized parameter may require a gradient.
      at::Tensor result = values_[i].clone().set_requires_grad(true);
      given_.push_back(result.storage().getWeakStorageImpl());
      return result;
    }
    throw std::logic_error("materialize was called with a tensor that is no parameter of the unit");
  }

  std::vector<at::Tensor> values_;
  // The parameters of the unit. They are on the meta device until make_flat_parameter() makes them
  // views of the flat tensor.
  std::vector<NamedParameter> parameters_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> given_;
};

void observe_shard(TestRank& rank, const std::string& name,
                   const std::shared_ptr<FlatParameter>& unit) {
  // nan_to_num() replaces the padding, which is NaN, by 0.
  rank.observe(name, unit->shard().detach().nan_to_num(0), places_of_shard(*unit));
}

// Expects the parameters' values in the shards that the ranks observed as `name`.
void expect_shards(const RankRun& run, const std::string& name, int line = __builtin_LINE()) {
  const RankRun oracle = run_oracle([&](TestRank& rank) {
    observe_expected_shards(rank, name, values_of(make_parameters(kShapes)), run.world_size());
  });
  expect_shards(run, oracle, name, __FILE__, line);
}

MULTI_RANK_TEST(T2_2_shard, the_shards_of_all_ranks_in_order_are_the_flat_tensor) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    observe_shard(rank, "shard", make_unit(rank));
    observe_shard(rank, "shard of materialized values", MetaUnit(rank).unit);
  });
  for (const std::string name : {"shard", "shard of materialized values"})
    expect_shards(run, name);
}

MULTI_RANK_TEST(T2_2_shard, only_parameters_of_which_this_rank_owns_an_element_are_materialized) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.observe("parameters that were materialized", MetaUnit(rank).asked);
  });
  const int64_t shard = padded_numel(world_size()) / world_size();
  for (int r = 0; r < world_size(); ++r) {
    std::vector<std::string> owned;
    for (size_t i = 0; i < 3; ++i) {
      if (kOffsets[i] < (r + 1) * shard && r * shard < kOffsets[i] + numel(i))
        owned.push_back("p" + std::to_string(i));
    }
    expect_on_rank(run, r, "parameters that were materialized", owned);
  }
}

MULTI_RANK_TEST(T2_2_shard, the_shard_requires_no_gradient) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.observe("the shard requires a gradient", make_unit(rank)->shard().requires_grad());
    const MetaUnit meta(rank);
    rank.observe("the shard of materialized values requires a gradient",
                 meta.unit->shard().requires_grad());
    observe_shard(rank, "shard of materialized values", meta.unit);
  });
  expect_on_all_ranks(run, "the shard requires a gradient", false);
  expect_on_all_ranks(run, "the shard of materialized values requires a gradient", false);
  expect_shards(run, "shard of materialized values");
}

MULTI_RANK_TEST(T2_2_shard, make_flat_parameter_materializes_one_parameter_at_a_time) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const MetaUnit meta(rank);
    rank.observe("materialized parameters alive when the next one was asked for",
                 meta.others_alive);
    observe_shard(rank, "shard of materialized values", meta.unit);
  });
  expect_on_all_ranks(run, "materialized parameters alive when the next one was asked for", 0);
  expect_shards(run, "shard of materialized values");
}

MULTI_RANK_TEST(T2_2_shard, make_flat_parameter_keeps_only_the_shard_in_memory) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.communicator();
    const int64_t before = live_bytes::now().total;
    const auto unit = make_unit(rank);
    rank.observe("live bytes after sharding", live_bytes::now().total - before);
    rank.observe("shard bytes", live_bytes_in(MemoryClass::shards));
    size_t storage_bytes = 0;
    for (const auto& [name, tensor] : unit->parameters())
      storage_bytes += tensor.storage().nbytes();
    rank.observe("bytes of storage under the parameters", storage_bytes);
    rank.observe("collectives that the constructor called", calls(*rank.communicator()));
  });
  const int64_t shard = padded_numel(world_size()) / world_size() * 4;
  expect_on_all_ranks(run, "live bytes after sharding", shard);
  expect_on_all_ranks(run, "shard bytes", bytes_only_in(MemoryClass::shards, shard));
  expect_on_all_ranks(run, "bytes of storage under the parameters", 0);
  expect_on_all_ranks(run, "collectives that the constructor called", "");
}

// This test is the sentinel of task 2: until it passes, the task gets no points. It compares no
// exact numbers of bytes, so a unit with other mistakes can pass it.
MULTI_RANK_TEST(T2_2_shard, a_rank_keeps_only_its_shard_of_the_unit_in_memory) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.communicator();
    const RetainedMemory memory;
    const LargeUnits units = make_large_units(rank);
    rank.observe("what the rank keeps", memory.taken());
  });
  expect_part_of(run, "what the rank keeps", large_bytes());
  expect_no_copies(run, "what the rank keeps", large_bytes());
  // A wrong solution may also copy the elements of a unit later, when the unit is used. So the test
  // also uses the units. If the use of a unit fails for another reason, this test does not fail:
  // the tests of the other problems of task 2 report that failure.
  const RankRun later = try_ranks(world_size(), use_large_units);
  expect_no_copies(later, "what the rank keeps after reshard()", large_bytes());
  expect_no_copies(later, "what the rank keeps after reduce_gradient()", large_bytes());
}

MULTI_RANK_TEST(T2_2_shard, make_flat_parameter_keeps_the_modules_parameter_variables) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    auto parameters = make_parameters(kShapes);
    parameters[1].tensor.set_requires_grad(false);
    const auto unit = make_flat_parameter("unit", parameters, rank.communicator());
    for (size_t i = 0; i < 3; ++i) {
      const at::Tensor& held_by_a_module = parameters[i].tensor;
      const at::Tensor& parameter = unit->parameters().at(i).tensor;
      const std::string name = "p" + std::to_string(i);
      rank.observe(name + ": the module's tensor is the unit's parameter",
                   held_by_a_module.is_same(parameter));
      rank.observe(name + " is a leaf", held_by_a_module.is_leaf());
      rank.observe(name + " requires a gradient", held_by_a_module.requires_grad());
      rank.observe("sizes of " + name, held_by_a_module.sizes().vec());
    }
  });
  for (size_t i = 0; i < 3; ++i) {
    const std::string name = "p" + std::to_string(i);
    expect_on_all_ranks(run, name + ": the module's tensor is the unit's parameter", true);
    expect_on_all_ranks(run, name + " is a leaf", true);
    expect_on_all_ranks(run, name + " requires a gradient", i != 1);
    expect_on_all_ranks(run, "sizes of " + name, kShapes[i]);
  }
}

MULTI_RANK_TEST(T2_2_shard, sharded_parameters_are_views_of_one_storage_at_their_offsets) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_unit(rank);
    for (const auto& [name, tensor] : unit->parameters()) {
      rank.observe(name + " has the storage of p0",
                   tensor.storage().is_alias_of(unit->parameters()[0].tensor.storage()));
      rank.observe("offset of " + name, tensor.storage_offset());
      rank.observe(name + " is contiguous", tensor.is_contiguous());
    }
  });
  for (size_t i = 0; i < 3; ++i) {
    const std::string name = "p" + std::to_string(i);
    expect_on_all_ranks(run, name + " has the storage of p0", true);
    expect_on_all_ranks(run, "offset of " + name, kOffsets[i]);
    expect_on_all_ranks(run, name + " is contiguous", true);
  }
}

MULTI_RANK_TEST(T2_2_shard, a_unit_is_trainable_if_one_of_its_parameters_is) {
  const auto name_of = [](unsigned frozen) {
    std::string name = "trainable() without gradients of:";
    for (unsigned i = 0; i < 3; ++i)
      name += (frozen >> i & 1U) != 0 ? " p" + std::to_string(i) : "";
    return name;
  };
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    for (unsigned frozen = 0; frozen < 8; ++frozen) {
      auto parameters = make_parameters(kShapes);
      for (unsigned i = 0; i < 3; ++i)
        parameters[i].tensor.set_requires_grad((frozen >> i & 1U) == 0);
      rank.observe(name_of(frozen),
                   make_flat_parameter("unit", parameters, rank.communicator())->trainable());
    }
  });
  for (unsigned frozen = 0; frozen < 8; ++frozen)
    expect_on_all_ranks(run, name_of(frozen), frozen != 7);
}

MULTI_RANK_TEST(T2_2_shard, a_unit_is_trainable_as_long_as_one_of_its_parameters_is) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_unit(rank);
    const auto set_all = [&](bool trainable) {
      for (const auto& [name, tensor] : unit->parameters())
        tensor.set_requires_grad(trainable);
    };
    set_all(false);
    rank.observe("trainable() after all parameters were frozen", unit->trainable());
    set_all(true);
    rank.observe("trainable() after they require gradients again", unit->trainable());
  });
  expect_on_all_ranks(run, "trainable() after all parameters were frozen", false);
  expect_on_all_ranks(run, "trainable() after they require gradients again", true);
}

MULTI_RANK_TEST(T2_2_shard, a_unit_may_have_fewer_elements_than_ranks) {
  const RankRun oracle = run_oracle([](TestRank& rank) {
    observe_expected_shards(rank, "shard", values_of(make_parameters(kTinyShapes)), world_size());
  });
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_unit(rank, kTinyShapes);
    rank.observe("shard", unit->shard().nan_to_num(0), places_of_shard(*unit));
  });
  expect_shards(run, oracle, "shard");
}

MULTI_RANK_TEST(T2_2_shard, padding_is_nan_with_poison_and_zero_without_poison) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    for (const bool poisoned : {true, false}) {
      poison::enable(poisoned);
      { const at::Tensor dirt = rank.communicator()->empty(4096).fill_(42); }
      const auto unit = make_unit(rank);
      const Places places = places_of_shard(*unit);
      int64_t wrong = 0;
      for (int64_t i = 0; i < unit->shard_numel(); ++i) {
        const auto value = unit->shard()[i].item<float>();
        const bool right = poisoned ? std::isnan(value) : value == 0;
        wrong += !places.in_parameter(i) && !right ? 1 : 0;
      }
      rank.observe(poisoned ? "elements of padding that are not NaN, with poison"
                            : "elements of padding that are not zero, without poison",
                   wrong);
    }
  });
  expect_on_all_ranks(run, "elements of padding that are not NaN, with poison", 0);
  expect_on_all_ranks(run, "elements of padding that are not zero, without poison", 0);
}

}  // namespace
}  // namespace fsdp
