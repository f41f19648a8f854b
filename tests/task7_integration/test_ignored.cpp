#include <fully_shard.h>
#include <ignored.h>
#include <memory/live_bytes.h>
#include <meta_init.h>
#include <testing/multi_rank.h>
#include <testing/toy_model.h>

#include <stdexcept>

#include "planned_models.h"

namespace fsdp {
namespace {

using Modules = std::vector<torch::nn::Module*>;

TEST(T7_8_ignored, parameters_that_only_ignored_modules_have_are_in_no_unit) {
  EXPECT_EQ(plan_text([] {
              Row model({std::make_shared<ToyBlock>(4, 1),
                         std::make_shared<HolderBlock>(std::make_shared<Scale>()),
                         std::make_shared<Scale>(), std::make_shared<Scale>()});
              auto& holder = dynamic_cast<HolderBlock&>(*model.row[1]);
              return plan_units(model, wrap_blocks(), {holder.inside.get(), model.row[2].get()});
            }),
            "root: d.factors; a: a.weight a.bias a.spare; b: b.own; ");
}

TEST(T7_8_ignored, a_block_inside_an_ignored_module_does_not_become_a_unit) {
  EXPECT_EQ(plan_text([] {
              Nested model;
              return plan_units(model, wrap_blocks(), {model.a.get()});
            }),
            "b: b.scale; b.inner: b.inner.weight b.inner.bias b.inner.spare; ");
}

TEST(T7_8_ignored, a_tied_parameter_is_in_a_unit_if_one_of_its_modules_is_not_ignored) {
  const auto plan = [](bool ignore_one, bool ignore_two) {
    return plan_text([=] {
      PairBlock model(kTied);
      Modules ignored;
      if (ignore_one) ignored.push_back(model.one.get());
      if (ignore_two) ignored.push_back(model.two.get());
      return plan_units(model, wrap_blocks(), ignored);
    });
  };
  EXPECT_EQ(plan(false, true), "root: one.weight; one: one.bias one.spare; ");
  EXPECT_EQ(plan(true, false), "root: one.weight; two: two.bias two.spare; ");
  EXPECT_EQ(plan(true, true), "");
}

TEST(T7_8_ignored, a_module_that_also_has_a_name_outside_the_ignored_modules_stays_in_its_unit) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    Nested model(kShared);
    const auto plan = plan_units(model, wrap_blocks(), {model.a.get()});
    // The names of the parameters in the unit of the inner block. Two outer blocks share this
    // block.
    std::string parameters;
    for (const UnitPlan& unit : plan)
      if (unit.module == model.a->inner.get())
        for (const NamedParameter& parameter : unit.parameters)
          parameters += parameter.name + " ";
    rank.observe("units", plan.size());
    rank.observe("of the shared block", parameters);
  });
  expect_on_rank(run, 0, "units", 2);
  expect_on_rank(run, 0, "of the shared block", "a.inner.weight a.inner.bias a.inner.spare ");
}

TEST(T7_8_ignored, plan_layout_leaves_out_ignored_parameters) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    ToyModel model(2);
    const auto plan = plan_units(model, wrap_blocks(), {model.blocks[0].get()});
    rank.observe("layout", lines(plan_layout(model, plan, 2)));
  });
  expect_on_rank(run, 0, "layout",
                 nlohmann::json::array({"on 2 ranks", "root, 96 elements, root, trainable",
                                        "blocks1, 96 elements, trainable",
                                        "embedding: 77 elements at 0 of root, trainable",
                                        "head: 7 elements at 80 of root, trainable",
                                        "blocks1.weight: 49 elements at 0 of blocks1, trainable",
                                        "blocks1.bias: 7 elements at 64 of blocks1, trainable",
                                        "blocks1.spare: 3 elements at 80 of blocks1, trainable"}));
}

MULTI_RANK_SUITE(T7_8_ignored_ranks);

// Compares a model with an ignored module with a model that is not sharded: the output, and after
// backward the .grad of the ignored module's parameters.
MULTI_RANK_TEST(T7_8_ignored_ranks,
                an_ignored_module_computes_as_before_and_keeps_its_own_gradient) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    ToyModel plain(3), model(3);
    Module& ignored = *model.blocks[1];
    FullyShardOptions options;
    options.ignored = {&ignored};
    const auto sharded = fully_shard(model, rank.communicator(), options);
    const auto memory_of = [&] {
      std::vector<const void*> memory;
      for (const at::Tensor& parameter : ignored.parameters())
        memory.push_back(parameter.data_ptr());
      return memory;
    };
    const auto before = memory_of();
    const at::Tensor output = model(toy_tokens(rank.rank()));
    const at::Tensor expected = plain(toy_tokens(rank.rank()));
    rank.observe("the output is as before", output.equal(expected));
    output.square().sum().backward();
    expected.square().sum().backward();
    bool equal = true;
    for (size_t i = 0; i < ignored.parameters().size(); ++i) {
      const at::Tensor gradient = ignored.parameters()[i].grad();
      equal =
          equal && gradient.defined() && gradient.equal(plain.blocks[1]->parameters()[i].grad());
    }
    rank.observe("its gradients are those of this rank alone", equal);
    rank.observe("its parameters stay where they were", before == memory_of());
    std::string reduced, visited;
    for (const auto& unit : sharded->units())
      if (unit->sharded_gradient().defined()) reduced += unit->unit() + " ";
    rank.observe("units with a gradient", reduced);
    sharded->full_parameters([&](const std::string& name, const at::Tensor&) {
      if (name.starts_with("blocks1")) visited += name + " ";
    });
    rank.observe("exported of it", visited);
  });
  for (const char* what : {"the output is as before", "its gradients are those of this rank alone",
                           "its parameters stay where they were"})
    expect_on_all_ranks(run, what, true);
  expect_on_all_ranks(run, "units with a gradient", "root blocks0 blocks2 ");
  expect_on_all_ranks(run, "exported of it", "");
}

MULTI_RANK_TEST(T7_8_ignored_ranks, materialize_module_materializes_ignored_parameters) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const ToyModel eager(2);
    std::shared_ptr<ToyModel> model;
    const DeferredInit init([&] { model = std::make_shared<ToyModel>(2); });
    const ToyBlock& ignored = *model->blocks[0];
    FullyShardOptions options;
    options.ignored = {model->blocks[0].get()};
    options.materialize = [&](const at::Tensor& parameter) {
      for (const at::Tensor& other : ignored.parameters())
        if (other.is_same(parameter)) throw std::logic_error("asks for an ignored parameter");
      return init.materialize_tensor(parameter);
    };
    const auto sharded = fully_shard(*model, rank.communicator(), options);
    rank.observe("it is deferred", ignored.weight.is_meta());
    init.materialize_module(*model);
    rank.observe("its values are right", ignored.weight.equal(eager.blocks[0]->weight));
    std::string left;
    for (const auto& unit : sharded->units())
      if (unit->state() == UnitState::sharded) left += unit->unit() + " ";
    rank.observe("sharded", left);
    sharded->units().back()->unshard();
    rank.observe("the others' values are right",
                 model->blocks[1]->weight.equal(eager.blocks[1]->weight));
  });
  for (const char* what :
       {"it is deferred", "its values are right", "the others' values are right"})
    expect_on_all_ranks(run, what, true);
  expect_on_all_ranks(run, "sharded", "root blocks1 ");
}

struct Refused {
  std::string what;
  Module* (*module)(ToyModel& model, Module& other);
  std::string named;  // a text that the error must contain
};

MULTI_RANK_TEST(T7_8_ignored_ranks, an_ignored_module_that_is_not_below_the_root_throws) {
  const std::vector<Refused> all{
      {"another model's block", [](ToyModel&, Module& other) { return &other; }, "ToyBlock"},
      {"the root", [](ToyModel& model, Module&) -> Module* { return &model; }, "ToyModel"},
      {"a null pointer", [](ToyModel&, Module&) -> Module* { return nullptr; }, "null"}};
  for (const Refused& refused : all) {
    SCOPED_TRACE(refused.what);
    const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
      ToyModel model(2);
      ToyBlock other(4, 1);
      FullyShardOptions options;
      options.ignored = {model.blocks[0].get(), refused.module(model, other)};
      rank.observe("what fully_shard() throws",
                   thrown_by([&] { fully_shard(model, rank.communicator(), options); }));
      bool whole = true;
      for (const at::Tensor& p : model.parameters())
        whole = whole && p.storage().nbytes() == p.nbytes();
      rank.observe("every parameter has its storage", whole);
    });
    expect_error(run, "what fully_shard() throws", {"std::invalid_argument", refused.named});
    expect_on_all_ranks(run, "every parameter has its storage", true);
  }
}

}  // namespace
}  // namespace fsdp
