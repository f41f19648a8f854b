#include <memory/live_bytes.h>

#include "small_unit.h"

// Tests of the peak of live bytes of all classes together. A unit has eight parameters, and its
// padding is small compared with them, so each copy of the whole unit shows in the peak.
namespace fsdp {
namespace {

MULTI_RANK_SUITE_ON(T2_2_peak, 1, 2, 3, 4, 8);
MULTI_RANK_SUITE(T2_5_peak);

const std::vector<int64_t> kShape =
    test_choice<std::vector<int64_t>>("shape of eight parameters", {{25, 40}, {30, 33}, {1007}});
const std::vector<std::vector<int64_t>> kEight(8, kShape);

int64_t bytes_of_one() {
  return at::empty(kShape, at::kMeta).numel() * int64_t{sizeof(float)};
}

int64_t bytes_of_flat(const FlatParameter& unit) {
  return unit.layout().padded_numel * int64_t{sizeof(float)};
}

// Observes, under `name`, the number of bytes by which `bytes` exceeds `allowed`. The number is 0
// if `bytes` does not exceed `allowed`.
void observe_beyond(TestRank& rank, const std::string& name, int64_t bytes, int64_t allowed) {
  rank.observe(name, std::max<int64_t>(bytes - allowed, 0));
}

MULTI_RANK_TEST(T2_2_peak, make_flat_parameter_peaks_at_the_shard_and_one_parameter) {
  const std::string name = "bytes at the peak of the constructor beyond the shard and a copy of ";
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    rank.communicator();
    for (const bool materialized : {false, true}) {
      const auto values = make_parameters(kEight);
      auto parameters = values;
      for (auto& [parameter_name, tensor] : parameters) {
        if (materialized) tensor = at::empty(kShape, at::kMeta);
      }
      // Index of the values that the next call of `materialize` returns. All parameters have the
      // same shape, so the order in which they are materialized does not matter.
      size_t next = 0;
      const auto materialize = [&](const at::Tensor&) { return values.at(next++).tensor; };
      live_bytes::enter(Phase::init);
      const int64_t before = live_bytes::now().total;
      const auto unit =
          make_flat_parameter("unit", parameters, rank.communicator(),
                              materialized ? FlatParameter::Materialize(materialize) : nullptr);
      const int64_t shard = unit->shard_numel() * int64_t{sizeof(float)};
      observe_beyond(rank, name + (materialized ? "a materialized parameter" : "a parameter"),
                     live_bytes::peak().total - before, shard + bytes_of_one());
    }
  });
  expect_on_all_ranks(run, name + "a parameter", 0);
  expect_on_all_ranks(run, name + "a materialized parameter", 0);
}

MULTI_RANK_TEST(T2_5_peak, reduce_gradient_needs_one_flat_gradient_at_its_peak) {
  const auto name = [](size_t count) {
    return "bytes at the peak of reduce_gradient() with " + std::to_string(count) +
           " collected, beyond those, one flat gradient and the sum";
  };
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const auto unit = make_unit(rank, kEight);
    const int64_t flat = bytes_of_flat(*unit), sum = flat / rank.world_size();
    for (const size_t count : {size_t{1}, kEight.size()}) {
      const int64_t before = live_bytes::now().total;
      for (size_t i = 0; i < count; ++i)
        collect(*unit, i, rank);
      const int64_t collected = static_cast<int64_t>(count) * bytes_of_one();
      live_bytes::enter(Phase::backward);
      unit->reduce_gradient();
      observe_beyond(rank, name(count), live_bytes::peak().total - before,
                     std::max(collected + flat + bytes_of_one(), flat + sum));
      unit->wait_for_reduction();
      unit->clear_sharded_gradient();
    }
  });
  expect_on_all_ranks(run, name(1), 0);
  expect_on_all_ranks(run, name(8), 0);
}

MULTI_RANK_TEST(T2_5_peak, collected_gradients_take_no_more_bytes_than_a_flat_gradient) {
  const std::string name = "bytes alive when all gradients are collected, beyond a flat gradient";
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const auto unit = make_unit(rank, kEight);
    const int64_t before = live_bytes::now().total;
    collect_all(*unit, rank);
    observe_beyond(rank, name, live_bytes::now().total - before, bytes_of_flat(*unit));
  });
  expect_on_all_ranks(run, name, 0);
}

}  // namespace
}  // namespace fsdp
