#include <fully_shard.h>
#include <memory/live_bytes.h>
#include <nn/models.h>
#include <testing/call_text.h>
#include <testing/multi_rank.h>
#include <testing/toy_model.h>

#include <algorithm>

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T7_4_export);

// Returns a ToyModel whose last block has unusual parameters: an empty one, a transposed one, one
// of a single number, and a frozen one.
std::shared_ptr<ToyModel> odd_model() {
  auto model = std::make_shared<ToyModel>(2);
  ToyBlock& last = *model->blocks[1];
  last.register_parameter("empty", at::zeros({0, 3}));
  last.register_parameter("permuted", at::arange(10.0F).view({2, 5}).t());
  last.register_parameter("number", at::full({}, 0.5));
  last.register_parameter("frozen", at::arange(3.0F), /*requires_grad=*/false);
  return model;
}

// Records that the export has visited a parameter. Observes the parameter's values only at the
// first visit, because a second visit shows in the list of names.
void visit(TestRank& rank, std::vector<std::string>& names, const std::string& name,
           const at::Tensor& parameter) {
  if (std::ranges::count(names, name) == 0) rank.observe(name, parameter);
  names.push_back(name);
}

// Compares what rank 0 visited. The list of names comes first: it shows a parameter that is
// missing, that comes twice or that comes too early.
void expect_visited(const RankRun& run, const RankRun& oracle, int line = __builtin_LINE()) {
  const std::string kNames = "parameters visited";
  expect_on_rank(run, 0, kNames, oracle.at(0, kNames), __FILE__, line);
  for (const std::string& name : oracle.names(0)) {
    if (name != kNames && run.observed(0, name))
      expect_on_rank(run, 0, name, oracle.at(0, name), __FILE__, line);
  }
}

MULTI_RANK_TEST(T7_4_export, rank_0_sees_every_parameter_in_order_one_unit_at_a_time) {
  const RankRun oracle = run_oracle([](TestRank& rank) {
    const auto model = odd_model();
    std::vector<std::string> names;
    for (const auto& item : model->named_parameters()) {
      names.push_back(item.key());
      rank.observe(item.key(), item.value().detach());
    }
    rank.observe("parameters visited", names);
  });
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto model = odd_model();
    const auto sharded = fully_shard(*model, rank.communicator());
    const int64_t before = live_bytes::now().total;
    live_bytes::enter(Phase::forward);
    std::vector<std::string> names;
    bool detached = true;
    sharded->full_parameters([&](const std::string& name, const at::Tensor& parameter) {
      visit(rank, names, name, parameter);
      detached = detached && !parameter.requires_grad();
    });
    rank.observe("parameters visited", names);
    rank.observe("every parameter was detached", detached);
    int64_t largest = 0;
    for (const auto& unit : sharded->units()) {
      largest = std::max(largest, unit->layout().padded_numel * 4);
    }
    rank.observe("gathered bytes beyond the largest unit",
                 live_bytes::peak(Phase::forward)[MemoryClass::gathered] - largest);
    rank.observe("twice the largest unit holds all that the export allocates, of any class",
                 live_bytes::peak(Phase::forward).total - before <= 2 * largest);
    rank.observe("gathered bytes afterwards", live_bytes::now()[MemoryClass::gathered]);
  });
  expect_visited(run, oracle);
  for (int r = 1; r < world_size(); ++r) {
    expect_on_rank(run, r, "parameters visited", nlohmann::json::array());
  }
  expect_on_all_ranks(run, "every parameter was detached", true);
  expect_on_all_ranks(run, "gathered bytes beyond the largest unit", 0);
  expect_on_all_ranks(
      run, "twice the largest unit holds all that the export allocates, of any class", true);
  expect_on_all_ranks(run, "gathered bytes afterwards", 0);
}

// Before the export, either nothing has run, or a forward has left all units unsharded, or the
// all-gather of a unit is under way.
MULTI_RANK_TEST(T7_4_export, after_full_parameters_every_unit_is_sharded_whatever_it_was_before) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    ToyModel model(3);
    const auto sharded = fully_shard(model, rank.communicator(), {.reshard_after_forward = false});
    for (const std::string before : {"nothing", "a forward", "an all-gather under way"}) {
      at::Tensor output;
      if (before == "a forward") output = model(toy_tokens(0));
      if (before == "an all-gather under way") sharded->units()[2]->unshard_async();
      bool whole = true;
      sharded->full_parameters([&](const std::string&, const at::Tensor& parameter) {
        whole = whole && parameter.isfinite().all().item<bool>();
      });
      rank.observe("values are there after " + before, whole);
      std::string names;
      for (const auto& unit : sharded->units())
        names += unit->state() == UnitState::sharded ? "" : unit->unit() + ' ';
      rank.observe("units that are not sharded after " + before + " and an export", names);
      // After a forward, its backward must still work: it gathers the units that the export has
      // resharded.
      if (output.defined()) output.sum().backward();
    }
  });
  for (const std::string before : {"nothing", "a forward", "an all-gather under way"}) {
    expect_on_all_ranks(run, "values are there after " + before, true);
    expect_on_all_ranks(run, "units that are not sharded after " + before + " and an export", "");
  }
}

MULTI_RANK_TEST(T7_4_export,
                all_ranks_issue_one_all_gather_for_parameters_that_follow_one_another) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto model = make_model("gpt2-tiny");
    const auto sharded = fully_shard(*model, rank.communicator());
    for (const std::string time : {"first", "second"}) {
      take_calls(*rank.communicator());
      sharded->full_parameters([](const std::string&, const at::Tensor&) {});
      rank.observe("calls of the " + time + " export", take_calls(*rank.communicator()));
    }
  });
  for (const std::string time : {"first", "second"}) {
    expect_on_all_ranks(run, "calls of the " + time + " export",
                        "all_gather root; all_gather h.0; all_gather h.1; all_gather h.2; "
                        "all_gather root; ");
  }
}

// The model's last layer norm belongs to the root, so the root comes twice in the order.
MULTI_RANK_TEST(T7_4_export,
                full_parameters_visits_the_root_at_both_its_places_in_the_order_of_the_model) {
  const RankRun oracle = run_oracle([](TestRank& rank) {
    at::manual_seed(test_seed(3));
    const auto model = make_model("gpt2-tiny");
    std::vector<std::string> names;
    for (const auto& [name, tensor] : distinct_parameters(*model)) {
      rank.observe(name, tensor.detach());
      names.push_back(name);
    }
    rank.observe("parameters visited", names);
  });
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    at::manual_seed(test_seed(3));
    const auto model = make_model("gpt2-tiny");
    const auto sharded = fully_shard(*model, rank.communicator());
    std::vector<std::string> visited;
    sharded->full_parameters([&](const std::string& name, const at::Tensor& parameter) {
      visit(rank, visited, name, parameter);
    });
    rank.observe("parameters visited", visited);
  });
  expect_visited(run, oracle);
}

// A module that has a buffer, `factors`, and no parameter.
class WithoutParameters : public Module {
 public:
  WithoutParameters() : factors_(register_buffer("factors", at::full({3}, 2.0F))) {}
  torch::Tensor forward(torch::Tensor x) override { return x * factors_; }

 private:
  at::Tensor factors_;
};

MULTI_RANK_TEST(T7_4_export, a_model_without_parameters_has_no_unit_and_exports_nothing) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    WithoutParameters model;
    const auto sharded = fully_shard(model, rank.communicator());
    rank.observe("units", sharded->units().size());
    rank.observe("output", model(at::ones({3})));
    int64_t visited = 0;
    sharded->full_parameters([&](const std::string&, const at::Tensor&) { ++visited; });
    rank.observe("parameters that are visited", visited);
    rank.observe("calls", take_calls(*rank.communicator()));
  });
  const RankRun oracle =
      run_oracle([](TestRank& rank) { rank.observe("output", at::full({3}, 2.0F)); });
  expect_on_all_ranks(run, "units", 0);
  expect_on_all_ranks(run, "output", oracle.at(0, "output"));
  expect_on_all_ranks(run, "parameters that are visited", 0);
  expect_on_all_ranks(run, "calls", "");
}

}  // namespace
}  // namespace fsdp
