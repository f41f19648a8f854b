#include <strategies/fsdp/wrap_option.h>
#include <unit_plan.h>

#include <task7_integration/planned_models.h>

#include "language_models.h"

namespace fsdp {
namespace {

// A block whose parameters all lie in one module inside, 20 of them.
struct WrapperBlock : Module {
  WrapperBlock() : inside(register_module("inside", std::make_shared<Linear>(at::ones({5, 4})))) {}
  at::Tensor forward(at::Tensor x) override { return (*inside)(x); }
  std::shared_ptr<Module> inside;
};

// x W' + b. `weight` may be another's, too.
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

TEST(WrapAuto, makes_a_module_a_unit_if_it_is_as_large_as_the_largest_block) {
  const std::string blocks = "layers.0 layers.1 layers.2 ";
  EXPECT_EQ(units_of([] { return untied_model(kRowsOfABlock); }),
            "root token_embeddings " + blocks + "lm_head ");
  EXPECT_EQ(units_of([] { return untied_model(kRowsOfABlock - 1); }), "root " + blocks);
}

using Modules = std::vector<std::shared_ptr<Module>>;

std::shared_ptr<Module> block(int64_t rows = 4) {
  return std::make_shared<ToyBlock>(rows, 1);  // of 4: 92 bytes
}
std::shared_ptr<Module> row(const Modules& modules) {
  return std::make_shared<Row>(modules);
}

TEST(WrapAuto, compares_with_the_largest_of_unequal_blocks) {
  const auto modules = [] { return Modules{block(), block(5), block(), linear(8), linear(9)}; };
  EXPECT_EQ(units_of_row(modules), "root a b c e ")
      << "the blocks take 92 and 132 bytes, the two others 128 and 144";
}

TEST(WrapAuto, leaves_a_tied_weight_with_the_module_around_all_its_places) {
  EXPECT_EQ(units_of([] { return tied_model(200); }), "root h.0 h.1 h.2 ");
  EXPECT_EQ(units_of_row([] {
              const at::Tensor weight = at::ones({9, 4});
              return Modules{block(), row({std::make_shared<Linear>(weight),
                                           std::make_shared<Linear>(weight)})};
            }),
            "a b ");
}

TEST(WrapAuto, does_not_count_what_is_tied_to_another_module) {
  const auto modules = [](int64_t tied_rows) {
    const at::Tensor weight = at::ones({tied_rows, 4});
    return Modules{std::make_shared<Biased>(weight), block(), std::make_shared<Biased>(weight)};
  };
  EXPECT_EQ(units_of_row([&] { return modules(22); }), "root b ") << "22 biases are 88 bytes";
  EXPECT_EQ(units_of_row([&] { return modules(23); }), "root a b c ") << "a block is 92 bytes";
}

TEST(WrapAuto, chooses_the_innermost_module_that_is_large_enough) {
  EXPECT_EQ(units_of_row([] {
              return Modules{block(), row({linear(6), linear(3), linear(3)})};
            }),
            "root a b.a ");
  EXPECT_EQ(units_of_row([] { return Modules{block(), row({linear(3), linear(3)})}; }), "a b ");
}

TEST(WrapAuto, chooses_nothing_inside_or_around_a_block) {
  EXPECT_EQ(
      units_of_row([] {
        return Modules{row({linear(4), std::make_shared<WrapperBlock>(), linear(4)}), linear(6)};
      }),
      "root a.b b ");
}

TEST(WrapAuto, without_blocks_the_root_is_the_only_unit) {
  EXPECT_EQ(units_of_row([] { return Modules{linear(50), linear(5)}; }), "root ");
}

// A class of the shortest name.
struct A : Scale {};

TEST(WrapPolicyOf, a_text_is_that_policy) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const auto plan = [&](const std::string& name, const WrapPolicy& policy) {
      Row model({std::make_shared<OuterBlock>(), std::make_shared<A>()});
      rank.observe(name, text(plan_units(model, policy)));
    };
    const std::vector<std::pair<std::string, WrapPolicy>> policies{
        {"auto", wrap_auto()},         {"block", wrap_blocks()},
        {"none", wrap_none()},         {"type:OuterBlock", wrap_by_type("OuterBlock")},
        {"type:A", wrap_by_type("A")}, {"size:1", wrap_by_size(1)},
        {"size:93", wrap_by_size(93)}, {"size:1000000000000", wrap_none()}};
    for (const auto& [good, policy] : policies) {
      plan(good, wrap_policy_of(good));
      plan("the policy of " + good, policy);
    }
  });
  for (const std::string good : {"auto", "block", "none", "type:OuterBlock", "type:A", "size:1",
                                 "size:93", "size:1000000000000"})
    expect_on_all_ranks(run, good, run.at(0, "the policy of " + good));
}

TEST(WrapPolicyOf, bad_text_is_refused) {
  for (const char* bad : {"", "blocks", "type:", "size:", "size:0", "size:1k", "size:-5",
                          "size:99999999999999999999"})
    EXPECT_THROW(wrap_policy_of(bad), std::invalid_argument) << bad;
}

MULTI_RANK_SUITE(WrapAutoTraining);

MULTI_RANK_TEST(WrapAutoTraining, gathers_an_embedding_for_forward_alone) {
  const Workload workload = workload_of(language_models().at(1));
  TrainConfig config = extension_config("fsdp", world_size());
  config.training.parts = world_size();  // one part of each rank
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const auto strategy = strategy_of(rank, config, workload);
    rank.communicator()->take_log();
    train_step(*strategy, config, 0);
    std::map<std::string, int> gathers;
    for (const Call& call : rank.communicator()->take_log())
      if (call.operation == Operation::all_gather) ++gathers[call.unit.str()];
    rank.observe("all-gathers of the embedding", gathers["token_embeddings"]);
    rank.observe("all-gathers of the head", gathers["lm_head"]);
  });
  expect_on_all_ranks(run, "all-gathers of the embedding", 1);
  expect_on_all_ranks(run, "all-gathers of the head", 2);
}

MULTI_RANK_TEST(WrapAutoTraining, equals_one_process_and_costs_what_is_predicted) {
  for (const NamedModel& model : language_models()) {
    SCOPED_TRACE(model.name);
    const Workload workload = workload_of(model);
    const TrainConfig config = extension_config("fsdp", world_size());
    expect_as_predicted(config, workload, hash_of_single(config, workload));
  }
}

}  // namespace
}  // namespace fsdp
