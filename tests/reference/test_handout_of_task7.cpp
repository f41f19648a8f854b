#include <fully_shard.h>
#include <meta_init.h>
#include <prediction/step_time.h>
#include <strategies/fsdp/wrap_option.h>

#include <numeric>

#include "small_model.h"

namespace fsdp {
namespace {

constexpr int64_t kMillisecond = 1'000'000;  // a millisecond, in ns

TEST(HandoutOfTask7, the_step_times_in_the_table_of_task_7_are_those_of_predict_step_time) {
  std::string row = "| step, ms |";
  for (int64_t units = 1; units <= 128; units *= 2) {
    const int64_t collective = 40 * kMillisecond / units + kMillisecond / 2;
    std::vector<UnitTime> times(1 + static_cast<size_t>(units));
    std::fill(times.begin() + 1, times.end(),
              UnitTime{40 * kMillisecond / units, 80 * kMillisecond / units});
    const auto step = predict_step_time(
        {}, times, [&](const auto& call) { return call.unit == 0 ? 0 : collective; });
    row += " " + rounded(static_cast<double>(step.total()) / kMillisecond, 1) + " |";
  }
  expect_said(7, {}, row);
}

TEST(HandoutOfTask7,
     the_answer_to_prediction_1_of_task_7_has_the_held_and_received_bytes_of_the_model_small) {
  const Values costs = costs_of_small(4, true, 2);
  expect_said(7, costs, "The shards take 4N/W = {shards} bytes.");
  expect_said(7, costs, "4 x (R + 2U) = 4 x (512,256 + 2 x 1,049,088) = {gathered} bytes.");
  expect_said(7, costs, "3/4 x 4 x (2N - R) = {all_gather} bytes by all-gather,");
  expect_said(7, costs,
              "3/4 x 4N = {reduce_scatter} bytes by reduce-scatter, half of the bytes of an "
              "all-reduce.");
  expect_said(7, costs, "With DDP it would receive 2 x 3/4 x 4N = {DDP} bytes.");
}

struct LeafModule : Module {
  explicit LeafModule(int64_t numel) { register_parameter("weight", at::ones({numel})); }
  torch::Tensor forward(torch::Tensor x) override { return x; }
};

struct Outer : LeafModule {
  Outer() : LeafModule(1) { register_module("inner", std::make_shared<LeafModule>(23)); }
};

struct TwoOuter : Module {
  TwoOuter() {
    register_module("a", std::make_shared<Outer>());
    register_module("b", std::make_shared<Outer>());
  }
  torch::Tensor forward(torch::Tensor x) override { return x; }
};

// Returns how many elements all units hold together if every unit has all parameters() of its
// module.
int64_t held_twice(const torch::nn::Module& root, const std::vector<Module*>& wrapped) {
  int64_t numel = 0;
  for (const at::Tensor& parameter : root.parameters())
    numel += parameter.numel();
  for (const Module* module : wrapped) {
    for (const at::Tensor& parameter : module->parameters())
      numel += parameter.numel();
  }
  return numel;
}

TEST(HandoutOfTask7,
     the_answer_to_prediction_2_of_task_7_has_the_elements_that_nested_units_hold_more_than_once) {
  const Values run = observed_on(1, [](TestRank& rank) {
    TwoOuter model;
    std::vector<Module*> wrapped;
    for (const auto& module : model.modules(/*include_self=*/false))
      wrapped.push_back(dynamic_cast<Module*>(module.get()));
    const int64_t held = held_twice(model, wrapped);
    rank.observe("held", held);
    rank.observe("factor", rounded(static_cast<double>(held) / 48, 2));
    std::shared_ptr<Module> small;
    construct_on_meta([&] { small = make_model("small"); });
    const int64_t of_small = held_twice(*small, wrap_blocks()(*small));
    rank.observe("of small", rounded(static_cast<double>(of_small) / 4'708'608, 2));
  });
  expect_said(7, run,
              "48 + 2 x 24 + 2 x 23 = {held} elements in place of 48, a factor of {factor}:");
  expect_said(7, run, "4,708,608 = {of small}.");
}

// Returns the names of the units into which `policy` wraps the model small, with the root first.
nlohmann::json units_of_small(const std::string& policy) {
  const Values run = observed_on(1, [&](TestRank& rank) {
    std::shared_ptr<Module> small;
    construct_on_meta([&] { small = make_model("small"); });
    std::vector<std::string> names;
    for (const UnitPlan& unit : plan_units(*small, wrap_policy_of(policy)))
      names.push_back(unit.name);
    rank.observe("names", names);
  });
  return run.at("names");
}

TEST(HandoutOfTask7,
     the_answer_to_prediction_3_of_task_7_has_the_number_of_units_that_wrap_by_size_makes) {
  expect_said(7, {},
              "and in every layer attn, w1, w2, w3: " +
                  std::to_string(units_of_small("size:1000000").size()) + " units with the root");
  expect_said(7, {},
              "then the block for what is left of it (1,050,624 bytes): " +
                  std::to_string(units_of_small("size:1048577").size()) + " units with the root.");
  expect_said(7, {},
              "The units are exactly the blocks and the root for sizes from 3,145,729 to 4,196,352 "
              "bytes.");
  const auto blocks = units_of_small("block");
  EXPECT_EQ(units_of_small("size:3145729"), blocks);
  EXPECT_EQ(units_of_small("size:4196352"), blocks);
  EXPECT_NE(units_of_small("size:3145728"), blocks);
  EXPECT_NE(units_of_small("size:4196353"), blocks);
}

TEST(HandoutOfTask7,
     the_answer_to_prediction_4_of_task_7_has_the_number_of_all_gathers_of_an_export) {
  const Values costs = costs_of_small(2, true, 2);
  EXPECT_EQ(costs.at("calls of an export"), 6);
  expect_said(7, costs,
              "It issues six: the root's parameters are registered first and last, so the root is "
              "gathered twice. The largest unit, a block, takes {gathered by an export} bytes.");
}

TEST(HandoutOfTask7,
     the_answer_to_question_3_of_task_7_has_the_gigabytes_of_gpt2_xl_with_fsdp_and_ddp) {
  const Values run = observed_on(1, [](TestRank& rank) {
    std::shared_ptr<Module> model;
    construct_on_meta([&] { model = make_model("gpt2-1558m"); });
    std::vector<int64_t> elements;  // number of elements of each unit
    for (const UnitPlan& unit : plan_units(*model, wrap_blocks())) {
      elements.push_back(0);
      for (const auto& parameter : unit.parameters)
        elements.back() += parameter.tensor.numel();
    }
    const int64_t all = std::accumulate(elements.begin(), elements.end(), int64_t{0});
    rank.observe("elements", all);
    rank.observe("root", elements.at(0));
    rank.observe("block", elements.at(1));
    const auto gigabytes = [](int64_t numel, int digits) {
      return rounded(4e-9 * static_cast<double>(numel), digits);
    };
    const int64_t shards = 3 * all / 8, root = elements[0], units = 2 * elements[1];
    rank.observe("3 shards", gigabytes(shards, 2));
    rank.observe("R", gigabytes(root, 2));
    rank.observe("2 U", gigabytes(units, 2));
    rank.observe("FSDP", gigabytes(shards + root + units, 2));
    rank.observe("DDP", gigabytes(3 * all, 1));
    rank.observe("with gradients", gigabytes(4 * all, 1));
  });
  expect_said(7, run,
              "{elements} parameters, of which {root} are in the root and {block} in each block.");
  expect_said(7, run,
              "{3 shards} + {R} + {2 U} = {FSDP} GB. With DDP it needs 3 x 4N = {DDP} GB, and with "
              "gradients {with gradients} GB.");
}

}  // namespace
}  // namespace fsdp
