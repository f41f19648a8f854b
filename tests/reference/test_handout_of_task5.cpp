#include <memory/live_bytes.h>
#include <sharded_optimizer.h>

#include <cmath>

#include "handout.h"
#include "small_model.h"

namespace fsdp {
namespace {

std::shared_ptr<FlatParameter> make_unit(TestRank& rank, const std::string& name,
                                         const std::vector<int64_t>& numels) {
  std::vector<NamedParameter> parameters;
  for (const int64_t numel : numels) {
    parameters.push_back({name + std::to_string(parameters.size()), at::ones({numel})});
    parameters.back().tensor.set_requires_grad(true);
  }
  return make_flat_parameter(name, parameters, rank.communicator());
}

// Every parameter's gradient is `value`; without one, no parameter has a gradient.
void reduce(FlatParameter& unit, std::optional<double> value) {
  for (size_t i = 0; value && i < unit.parameters().size(); ++i) {
    const at::Tensor& parameter = unit.parameters()[i].tensor;
    parameter.mutable_grad() = at::full(parameter.sizes(), *value);
    unit.collect_gradient(i);
  }
  unit.reduce_gradient();
  unit.wait_for_reduction();
}

TEST(HandoutOfTask5, prediction_1_lays_out_unit_b) {
  const FlatLayout two = flat_layout({24, 40}, 2), four = flat_layout({24, 40}, 4);
  const int64_t part = four.padded_numel / 4;
  expect_said(5, "At " + with_commas(two.offsets[0]) + " and " + with_commas(two.offsets[1]) +
                     ". The bias ends at " + with_commas(two.offsets[1] + 40) + ", rounded up to " +
                     with_commas(round_up(two.offsets[1] + 40, kAlignment)) +
                     ". W = 2: " + with_commas(two.padded_numel) + " elements, shards at 0 and " +
                     with_commas(two.padded_numel / 2) +
                     ". W = 4: " + with_commas(four.padded_numel) + " elements, shards at 0, " +
                     with_commas(part) + ", " + with_commas(2 * part) + " and " +
                     with_commas(3 * part) + ".");
}

std::vector<int64_t> bytes_of_state(int world_size) {
  const RankRun run = run_ranks(world_size, [](TestRank& rank) {
    const std::vector<std::shared_ptr<FlatParameter>> units{make_unit(rank, "a", {35, 3}),
                                                            make_unit(rank, "b", {24, 40})};
    const auto optimizer = make_sharded_optimizer(units, {{"", {}}}, rank.communicator());
    for (const auto& unit : units)
      reduce(*unit, 1);
    optimizer->step();
    rank.observe("state", live_bytes::now()[MemoryClass::optimizer_state]);
  });
  std::vector<int64_t> bytes;
  for (int r = 0; r < world_size; ++r)
    bytes.push_back(run.at(r, "state").get<int64_t>());
  return bytes;
}

TEST(HandoutOfTask5, prediction_2_counts_the_bytes_of_the_state) {
  const auto two = bytes_of_state(2), four = bytes_of_state(4);
  expect_said(
      5, "W = 2: rank 0 has pieces of 32 and 48 elements, 8 x 80 + 8 = " + with_commas(two[0]) +
             " bytes; rank 1 has pieces of 32 and 32, " + with_commas(two[1]) + " bytes.");
  expect_said(5, "So the bytes are " + with_commas(four[0]) + ", " + with_commas(four[1]) + ", " +
                     with_commas(four[2]) + " and " + with_commas(four[3]) + ".");
  expect_said(5, "Then W = 2 has one more piece on each rank: " + with_commas(two[0] + 4) +
                     " and " + with_commas(two[1] + 4) + " bytes.");
}

TEST(HandoutOfTask5, prediction_3_counts_the_state_of_the_model_small) {
  const RankRun run = run_ranks(4, [](TestRank& rank) {
    const SmallModel small(rank, true, 2);
    const auto optimizer = make_sharded_optimizer(small.sharded->units(), {{"", {}}}, small.comm);
    small.step();
    optimizer->step();
    rank.observe("state", live_bytes::now()[MemoryClass::optimizer_state]);
  });
  const auto bytes = run.at(0, "state").get<int64_t>();
  expect_said(5, "8N/4 = " + with_commas(bytes - 5 * 4) +
                     ", and five pieces with a count each: " + with_commas(bytes) + " bytes.");
}

// The value 1.0 after a step of AdamW on one rank; empty: no gradient came.
std::string after_a_step(std::optional<double> gradient) {
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    const auto unit = make_unit(rank, "unit", {1});
    OptimizerOptions options;
    options.lr = 0.1;
    options.weight_decay = 0.5;
    const auto optimizer = make_sharded_optimizer({unit}, {{"", options}}, rank.communicator());
    reduce(*unit, gradient);
    optimizer->step();
    rank.observe("value", unit->shard()[0].item<double>());
  });
  return rounded(run.at(0, "value").get<double>(), 2);
}

TEST(HandoutOfTask5, prediction_4_follows_a_parameter_through_a_step) {
  const std::string unused = after_a_step(std::nullopt), used = after_a_step(0.001);
  expect_said(5, "1 - 0.1 x 0.5 = " + unused + ". With a gradient: " + unused + " - 0.1 = " + used);
  expect_said(5, "Not divided: " + after_a_step(0.002) + " as well.");
}

TEST(HandoutOfTask5, prediction_5_takes_wrong_norms) {
  const double first = 9, second = 16;
  expect_said(5, "Root first: " + rounded(std::sqrt(first) + std::sqrt(second), 0) +
                     ". Average: " + rounded(std::sqrt((first + second) / 2), 2) + ",");
  expect_said(5, "one rank reports " + rounded(std::sqrt(first), 0) + ", the other " +
                     rounded(std::sqrt(second), 0));
}

}  // namespace
}  // namespace fsdp
