#include <fully_shard.h>
#include <meta_init.h>
#include <prediction/step_time.h>
#include <strategies/fsdp/wrap_option.h>

#include "handout.h"
#include "small_model.h"

namespace fsdp {
namespace {

constexpr int64_t kMillisecond = 1'000'000;  // [ns]

TEST(HandoutOfTask7, the_table_of_unit_sizes_is_what_the_model_predicts) {
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
  expect_said(7, row);
}

TEST(HandoutOfTask7, prediction_1_counts_the_bytes_of_the_model_small) {
  const RankRun run = run_ranks(4, [](TestRank& rank) {
    const SmallModel small(rank, true, 2);
    rank.observe("shards", with_commas(live_bytes::now()[MemoryClass::shards]));
    small.step();
    live_bytes::enter(Phase::forward);
    const auto bytes = small.step();
    rank.observe("gathered", with_commas(live_bytes::peak()[MemoryClass::gathered]));
    rank.observe("all_gather", with_commas(bytes.at("all_gather")));
    rank.observe("reduce_scatter", with_commas(bytes.at("reduce_scatter")));
    small.comm->take_log();
    small.comm->all_reduce(at::ones({small.sharded->layout().numel()}), "all").wait();
    rank.observe("ddp", with_commas(small.comm->take_log().at(0).bytes));
  });
  const auto at = [&](const std::string& name) { return run.at(0, name).get<std::string>(); };
  expect_said(7, "Shards 4N/W = " + at("shards") + " bytes.");
  expect_said(7, "Gathered R + 2U = 2,049,024 + 2 x 4,196,352 = " + at("gathered") + ".");
  expect_said(7, "All-gather 3/4 x 4 x (2N - root) = " + at("all_gather") + ",");
  expect_said(7, "Reduce-scatter 3/4 x 4N = " + at("reduce_scatter") + ", half of an all-reduce.");
  expect_said(7, "DDP 2 x 3/4 x 4N = " + at("ddp") + ".");
}

struct Leaf : Module {
  explicit Leaf(int64_t numel) { register_parameter("weight", at::ones({numel})); }
  torch::Tensor forward(torch::Tensor x) override { return x; }
};

struct Outer : Leaf {
  Outer() : Leaf(1) { register_module("inner", std::make_shared<Leaf>(23)); }
};

struct TwoOuter : Module {
  TwoOuter() {
    register_module("a", std::make_shared<Outer>());
    register_module("b", std::make_shared<Outer>());
  }
  torch::Tensor forward(torch::Tensor x) override { return x; }
};

// Elements that are held if every unit takes parameters() of its module.
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

TEST(HandoutOfTask7, prediction_2_counts_elements_that_are_held_more_than_once) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    TwoOuter model;
    std::vector<Module*> wrapped;
    for (const auto& module : model.modules(/*include_self=*/false))
      wrapped.push_back(dynamic_cast<Module*>(module.get()));
    rank.observe("held", held_twice(model, wrapped));
    std::shared_ptr<Module> small;
    construct_on_meta([&] { small = make_model("small"); });
    rank.observe("small", held_twice(*small, wrap_blocks()(*small)));
  });
  const auto held = run.at(0, "held").get<double>(), small = run.at(0, "small").get<double>();
  expect_said(7, "48 + 2 x 24 + 2 x 23 = " + rounded(held, 0) + " in place of 48, a factor of " +
                     rounded(held / 48, 2) + ":");
  expect_said(7, "4,708,608 = " + rounded(small / 4'708'608, 2) + ".");
}

// The names of the units of the model small; the root first.
std::vector<std::string> units_of_small(const std::string& policy) {
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    std::shared_ptr<Module> small;
    construct_on_meta([&] { small = make_model("small"); });
    std::vector<std::string> names;
    for (const UnitPlan& unit : plan_units(*small, wrap_policy_of(policy)))
      names.push_back(unit.name);
    rank.observe("names", names);
  });
  return run.at(0, "names").get<std::vector<std::string>>();
}

TEST(HandoutOfTask7, prediction_3_counts_the_units_of_each_size) {
  expect_said(7, "and in every layer attn, w1, w2, w3: " +
                     std::to_string(units_of_small("size:1000000").size()) + " units");
  expect_said(7, "then the block for what is left of it (1,050,624): " +
                     std::to_string(units_of_small("size:1048577").size()) + " units.");
  expect_said(7, "Exactly the blocks: from 3,145,729 to 4,196,352 bytes.");
  const auto blocks = units_of_small("block");
  EXPECT_EQ(units_of_small("size:3145729"), blocks);
  EXPECT_EQ(units_of_small("size:4196352"), blocks);
  EXPECT_NE(units_of_small("size:3145728"), blocks);
  EXPECT_NE(units_of_small("size:4196353"), blocks);
}

TEST(HandoutOfTask7, prediction_4_counts_the_all_gathers_of_an_export) {
  const RankRun run = run_ranks(2, [](TestRank& rank) {
    const SmallModel small(rank, true, 2);
    small.comm->take_log();
    live_bytes::enter(Phase::forward);
    small.sharded->full_parameters([](const auto&, const at::Tensor&) {});
    rank.observe("calls", small.comm->take_log().size());
    rank.observe("peak", with_commas(live_bytes::peak()[MemoryClass::gathered]));
  });
  EXPECT_EQ(run.at(0, "calls"), 6);
  expect_said(7,
              "Six: the root's parameters are registered first and last, so the root is gathered "
              "twice. U = " +
                  run.at(0, "peak").get<std::string>() + " bytes.");
}

TEST(HandoutOfTask7, question_3_counts_the_bytes_of_gpt2_xl) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    std::shared_ptr<Module> model;
    construct_on_meta([&] { model = make_model("gpt2-1558m"); });
    const auto plan = plan_units(*model, wrap_blocks());
    const auto elements = [](const UnitPlan& unit) {
      int64_t numel = 0;
      for (const auto& parameter : unit.parameters)
        numel += parameter.tensor.numel();
      return numel;
    };
    int64_t all = 0;
    for (const UnitPlan& unit : plan)
      all += elements(unit);
    rank.observe("elements", all);
    rank.observe("root", elements(plan.at(0)));
    rank.observe("block", elements(plan.at(1)));
  });
  const auto at = [&](const std::string& name) { return run.at(0, name).get<double>(); };
  expect_said(7, with_commas(run.at(0, "elements")) + " parameters, root " +
                     with_commas(run.at(0, "root")) + ", blocks of " +
                     with_commas(run.at(0, "block")) + ",");
  const double shards = 3 * 4 * at("elements") / 8, root = 4 * at("root"),
               units = 2 * 4 * at("block");
  expect_said(7, gigabytes(shards, 2) + " + " + gigabytes(root, 2) + " + " + gigabytes(units, 2) +
                     " = " + gigabytes(shards + root + units, 2) +
                     " GB. DDP 3 x 4N = " + gigabytes(12 * at("elements")) +
                     " GB, with gradients " + gigabytes(16 * at("elements")) + " GB.");
}

}  // namespace
}  // namespace fsdp
