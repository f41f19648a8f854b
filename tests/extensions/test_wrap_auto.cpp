#include <strategies/fsdp/wrap_option.h>
#include <unit_plan.h>

#include <task7_integration/planned_models.h>

#include "language_models.h"

namespace fsdp {
namespace {

// A block that wraps a Linear. All its 20 parameter elements belong to this inner module.
struct WrapperBlock : Module {
  WrapperBlock() : inside(register_module("inside", std::make_shared<Linear>(at::ones({5, 4})))) {}
  at::Tensor forward(at::Tensor x) override { return (*inside)(x); }
  std::shared_ptr<Module> inside;
};

// Computes x W^T + b. The weight W may be shared with another module.
struct Biased : Linear {
  explicit Biased(const at::Tensor& weight) : Linear(weight, at::zeros({weight.size(0)})) {}
};

std::string names(const std::vector<UnitPlan>& plan) {
  std::string text;
  for (const UnitPlan& unit : plan)
    text += unit.name + " ";
  return text;
}

std::string units_of(const std::function<std::shared_ptr<Module>()>& build) {
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    const auto model = build();
    const auto plan = plan_units(*model, wrap_auto());
    rank.observe("units", names(plan));
    const size_t root = plan.front().name == "root" ? 1 : 0;
    rank.observe("chosen without a parameter", wrap_auto()(*model).size() + root - plan.size());
  });
  expect_on_rank(run, 0, "chosen without a parameter", 0);
  return run.at(0, "units").get<std::string>();
}

std::string units_of_row(const std::function<std::vector<std::shared_ptr<Module>>()>& modules) {
  return units_of([&] { return std::make_shared<Row>(modules()); });
}

std::shared_ptr<Module> linear(int64_t out) {
  return std::make_shared<Linear>(at::ones({out, 4}));
}

TEST(WrapAuto, wrap_auto_makes_a_unit_of_a_module_as_large_as_the_largest_block) {
  const std::string blocks = "layers.0 layers.1 layers.2 ";
  EXPECT_EQ(units_of([] { return untied_model(kRowsOfABlock); }),
            "root token_embeddings " + blocks + "lm_head ");
  EXPECT_EQ(units_of([] { return untied_model(kRowsOfABlock - 1); }), "root " + blocks);
}

using Modules = std::vector<std::shared_ptr<Module>>;

std::shared_ptr<Module> block(int64_t rows = 4) {
  return std::make_shared<ToyBlock>(rows, 1);  // a ToyBlock of 4 rows takes 92 bytes
}
std::shared_ptr<Module> row(const Modules& modules) {
  return std::make_shared<Row>(modules);
}

TEST(WrapAuto, wrap_auto_compares_modules_with_the_largest_block_if_blocks_differ_in_size) {
  const auto modules = [] { return Modules{block(), block(5), block(), linear(8), linear(9)}; };
  EXPECT_EQ(units_of_row(modules), "root a b c e ")
      << "the blocks take 92 and 132 bytes, the two others 128 and 144";
}

TEST(WrapAuto, wrap_auto_leaves_a_tied_weight_to_the_module_around_all_its_uses) {
  EXPECT_EQ(units_of([] { return tied_model(200); }), "root h.0 h.1 h.2 ");
  EXPECT_EQ(units_of_row([] {
              const at::Tensor weight = at::ones({9, 4});
              return Modules{block(), row({std::make_shared<Linear>(weight),
                                           std::make_shared<Linear>(weight)})};
            }),
            "a b ");
}

TEST(WrapAuto, wrap_auto_does_not_count_tied_parameters_in_the_size_of_a_module) {
  const auto modules = [](int64_t tied_rows) {
    const at::Tensor weight = at::ones({tied_rows, 4});
    return Modules{std::make_shared<Biased>(weight), block(), std::make_shared<Biased>(weight)};
  };
  EXPECT_EQ(units_of_row([&] { return modules(22); }), "root b ") << "22 biases are 88 bytes";
  EXPECT_EQ(units_of_row([&] { return modules(23); }), "root a b c ") << "a block is 92 bytes";
}

TEST(WrapAuto, wrap_auto_chooses_the_innermost_module_that_is_large_enough) {
  EXPECT_EQ(units_of_row([] {
              return Modules{block(), row({linear(6), linear(3), linear(3)})};
            }),
            "root a b.a ");
  EXPECT_EQ(units_of_row([] { return Modules{block(), row({linear(3), linear(3)})}; }), "a b ");
}

TEST(WrapAuto, wrap_auto_chooses_no_module_inside_or_around_a_block) {
  EXPECT_EQ(
      units_of_row([] {
        return Modules{row({linear(4), std::make_shared<WrapperBlock>(), linear(4)}), linear(6)};
      }),
      "root a.b b ");
}

TEST(WrapAuto, wrap_auto_makes_the_root_the_only_unit_if_there_are_no_blocks) {
  EXPECT_EQ(units_of_row([] { return Modules{linear(50), linear(5)}; }), "root ");
}

}  // namespace
}  // namespace fsdp
