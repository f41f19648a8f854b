#include <memory/live_bytes.h>
#include <sharded_optimizer.h>

#include <cmath>

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

// Fills the gradients of all parameters of the unit with `value`, and reduces them. If `value` is
// absent, no parameter has a gradient.
void reduce(FlatParameter& unit, std::optional<double> value) {
  for (size_t i = 0; value && i < unit.parameters().size(); ++i) {
    const at::Tensor& parameter = unit.parameters()[i].tensor;
    parameter.mutable_grad() = at::full(parameter.sizes(), *value);
    unit.mark_gradient_ready(i);
  }
  unit.reduce_gradient();
  unit.wait_for_reduction();
}

TEST(HandoutOfTask5,
     the_answer_to_prediction_1_of_task_5_has_the_computed_layout_of_a_unit_on_2_and_4_ranks) {
  const FlatLayout two = flat_layout({24, 40}, 2), four = flat_layout({24, 40}, 4);
  const int64_t part = four.padded_numel / 4;
  expect_said(5, {},
              "The parameters start at " + with_commas(two.offsets[0]) + " and " +
                  with_commas(two.offsets[1]) + ". The bias ends at " +
                  with_commas(two.offsets[1] + 40) + ", which is rounded up to " +
                  with_commas(round_up(two.offsets[1] + 40, kAlignment)) +
                  ". With W = 2 the unit has " + with_commas(two.padded_numel) +
                  " elements, and shards begin at 0 and " + with_commas(two.padded_numel / 2) +
                  ". With W = 4 the unit has " + with_commas(four.padded_numel) +
                  " elements, and shards begin at 0, " + with_commas(part) + ", " +
                  with_commas(2 * part) + " and " + with_commas(3 * part) + ".");
}

// Returns the bytes of optimizer state of each rank. The names of the values are "W, rank", where W
// is the number of ranks.
Values bytes_of_state() {
  Values bytes;
  for (const int world_size : {2, 4}) {
    const RankRun run = run_ranks(world_size, [](TestRank& rank) {
      const std::vector<std::shared_ptr<FlatParameter>> units{make_unit(rank, "a", {35, 3}),
                                                              make_unit(rank, "b", {24, 40})};
      const auto optimizer = make_sharded_optimizer(units, {{"", {}}}, rank.communicator());
      for (const auto& unit : units)
        reduce(*unit, 1);
      optimizer->step();
      rank.observe("state", live_bytes::now()[MemoryClass::optimizer_state]);
    });
    for (int r = 0; r < world_size; ++r)
      bytes[std::to_string(world_size) + ", " + std::to_string(r)] = run.at(r, "state");
  }
  return bytes;
}

TEST(HandoutOfTask5,
     the_answer_to_prediction_2_of_task_5_has_the_bytes_of_optimizer_state_on_each_rank) {
  Values bytes = bytes_of_state();
  bytes["more on 0"] = bytes["2, 0"].get<int64_t>() + 4;
  bytes["more on 1"] = bytes["2, 1"].get<int64_t>() + 4;
  expect_said(5, bytes,
              "With W = 2, rank 0 has pieces of 32 and 48 elements: 8 x 80 + 8 = {2, 0} bytes. "
              "Rank 1 has pieces of 32 and 32 elements: {2, 1} bytes.");
  expect_said(5, bytes, "So the bytes are {4, 0}, {4, 1}, {4, 2} and {4, 3}.");
  expect_said(5, bytes,
              "Then each rank has one more piece with W = 2: {more on 0} and {more on 1} bytes.");
}

TEST(HandoutOfTask5,
     the_answer_to_prediction_3_of_task_5_has_the_bytes_of_optimizer_state_of_the_model_small) {
  Values costs = costs_of_small(4, true, 2);
  costs["moments"] = costs["state"].get<int64_t>() - 5 * 4;
  expect_said(5, costs,
              "8N/4 = {moments} bytes. The counts of the five pieces take 20 bytes more: {state} "
              "bytes in all.");
}

// Returns the value that a parameter, 1.0 before, has after a step of AdamW on one rank with this
// gradient. An empty `gradient` means that the parameter has none.
nlohmann::json after_a_step(std::optional<double> gradient) {
  const Values run = observed_on(1, [&](TestRank& rank) {
    const auto unit = make_unit(rank, "unit", {1});
    OptimizerOptions options;
    options.lr = 0.1;
    options.weight_decay = 0.5;
    const auto optimizer = make_sharded_optimizer({unit}, {{"", options}}, rank.communicator());
    reduce(*unit, gradient);
    optimizer->step();
    rank.observe("value", rounded(unit->shard()[0].item<double>(), 2));
  });
  return run.at("value");
}

TEST(HandoutOfTask5,
     the_answer_to_prediction_4_of_task_5_has_the_value_of_a_parameter_after_a_step_of_adamw) {
  const Values values{{"unused", after_a_step(std::nullopt)},
                      {"used", after_a_step(0.001)},
                      {"not divided", after_a_step(0.002)}};
  expect_said(5, values, "it is decayed: 1 - 0.1 x 0.5 = {unused}.");
  expect_said(5, values, "So the value is {unused} - 0.1 x 1 = {used} (eps changes it a little).");
  expect_said(5, values, "With a gradient of 0.002 the value is {not divided} as well.");
}

TEST(HandoutOfTask5,
     the_answer_to_prediction_5_of_task_5_has_the_gradient_norms_that_three_mistakes_give) {
  const double first = 9, second = 16;
  expect_said(5, {},
              "With the root first, the norm is " +
                  rounded(std::sqrt(first) + std::sqrt(second), 0) +
                  ". With the mean, the norm is " + rounded(std::sqrt((first + second) / 2), 2) +
                  ": it is");
  expect_said(5, {},
              "one rank reports " + rounded(std::sqrt(first), 0) + ", the other " +
                  rounded(std::sqrt(second), 0));
}

}  // namespace
}  // namespace fsdp
