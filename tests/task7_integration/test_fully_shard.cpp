#include <fully_shard.h>
#include <memory/live_bytes.h>
#include <meta_init.h>
#include <nn/models.h>
#include <sharded_optimizer.h>
#include <testing/call_text.h>
#include <testing/kernel_calls.h>
#include <testing/multi_rank.h>
#include <testing/retained_memory.h>
#include <testing/toy_model.h>

#include <functional>
#include <map>

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T7_1_fully_shard_ranks);

MULTI_RANK_TEST(T7_1_fully_shard_ranks, after_fully_shard_all_ranks_together_hold_every_parameter) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    ToyModel model(3);
    const auto sharded = fully_shard(model, rank.communicator());
    rank.observe("bytes of shards", live_bytes::now()[MemoryClass::shards]);
    rank.observe("expected", sharded->layout().padded_numel() * 4 / rank.world_size());
    int64_t full = 0;
    for (const auto& p : model.parameters())
      full += static_cast<int64_t>(p.storage().nbytes());
    rank.observe("bytes of full parameters", full);
  });
  expect_on_each_rank(run, "bytes of shards", [&](int r) { return run.at(r, "expected"); });
  expect_on_all_ranks(run, "bytes of full parameters", 0);
}

// This test is the sentinel of task 7: until it passes, the task gets no points. It compares no
// exact numbers of bytes, so a fully_shard() with other mistakes can pass it.
MULTI_RANK_TEST(T7_1_fully_shard_ranks, after_fully_shard_a_rank_holds_only_a_part_of_the_model) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.communicator();
    const RetainedMemory memory;
    const auto model = large_toy();
    const auto sharded = fully_shard(*model, rank.communicator());
    rank.observe("fully_shard() returns nothing", sharded == nullptr);
    rank.observe("what the rank holds", memory.taken());
  });
  expect_on_all_ranks(run, "fully_shard() returns nothing", false);
  expect_part_of(run, "what the rank holds", large_toy_bytes());
  expect_no_copies(run, "what the rank holds", large_toy_bytes());
  // A wrong solution may also copy the model later, in a step. If the step fails for another
  // reason, other tests report it.
  const RankRun later = try_ranks(world_size(), [](TestRank& rank) {
    rank.communicator();
    const RetainedMemory memory;
    const auto model = large_toy();
    const auto sharded = fully_shard(*model, rank.communicator());
    as_far_as_written([&] {
      (*model)(toy_tokens(rank.rank())).square().sum().backward();
      rank.observe("what the rank holds after backward", memory.taken());
    });
  });
  expect_no_copies(later, "what the rank holds after backward", large_toy_bytes());
}

// The text of the collectives that a backward pass through a ToyModel of three blocks issues, in
// order.
constexpr const char* kBackwardOf3 =
    "all_gather blocks2; all_gather blocks1; reduce_scatter blocks2; all_gather blocks0; "
    "reduce_scatter blocks1; reduce_scatter blocks0; reduce_scatter root; ";

MULTI_RANK_TEST(T7_1_fully_shard_ranks, backward_gathers_a_unit_before_the_ones_it_prefetches) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    ToyModel model(3);
    const auto sharded = fully_shard(model, rank.communicator());
    const auto loss = model(toy_tokens(rank.rank())).square().sum();
    rank.communicator()->take_log();
    loss.backward();
    std::string blocks;
    for (const Call& call : rank.communicator()->take_log()) {
      const bool gathers = call.operation == Operation::all_gather;
      if (gathers && call.unit.str() != "root") blocks += call.unit.str() + " ";
    }
    rank.observe("all-gathers of blocks in backward", blocks);
  });
  expect_on_all_ranks(run, "all-gathers of blocks in backward", "blocks2 blocks1 blocks0 ");
}

MULTI_RANK_TEST(T7_1_fully_shard_ranks, a_step_issues_every_collective_once_and_in_order) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    ToyModel model(3);
    const auto sharded = fully_shard(model, rank.communicator());
    for (const std::string step : {"first", "second"}) {
      const auto loss = model(toy_tokens(rank.rank())).square().sum();
      rank.observe("calls of the " + step + " forward", take_calls(*rank.communicator()));
      loss.backward();
      rank.observe("calls of the " + step + " backward", take_calls(*rank.communicator()));
    }
  });
  for (const std::string step : {"first", "second"}) {
    expect_on_all_ranks(
        run, "calls of the " + step + " forward",
        "all_gather root; all_gather blocks0; all_gather blocks1; all_gather blocks2; ");
    expect_on_all_ranks(run, "calls of the " + step + " backward", kBackwardOf3);
  }
}

MULTI_RANK_TEST(T7_1_fully_shard_ranks,
                a_forward_without_a_backward_adds_no_gather_to_a_later_backward) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    ToyModel model(3);
    const auto sharded = fully_shard(model, rank.communicator());
    const auto loss = [&] { return model(toy_tokens(rank.rank())).square().sum(); };
    loss();
    loss().backward();
    const auto next = loss();
    take_calls(*rank.communicator());
    next.backward();
    rank.observe("calls of the next backward", take_calls(*rank.communicator()));
  });
  expect_on_all_ranks(run, "calls of the next backward", kBackwardOf3);
}

// A hook of the user calls a block without gradients while backward still needs the block's
// parameters. The forward hooks of task 3 reshard the unit after this call, so those of task 4 must
// run later, to unshard it again.
MULTI_RANK_TEST(T7_1_fully_shard_ranks,
                a_forward_inside_a_backward_pass_leaves_unsharded_what_the_pass_still_reads) {
  const std::string kState = "blocks1 is unsharded after a call of it inside its backward";
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    for (const bool called : {false, true}) {
      ToyModel model(3);
      const auto sharded = fully_shard(model, rank.communicator());
      const FlatParameter& unit = *sharded->units()[2];
      if (called) {
        model.blocks[1]->register_full_backward_pre_hook([&](Module&) {
          const at::NoGradGuard no_grad;
          (*model.blocks[1])(at::ones({1, 7}));
          rank.observe(kState, unit.state() == UnitState::unsharded);
        });
      }
      model(toy_tokens(rank.rank())).square().sum().backward();
      rank.observe(called ? "gradient" : "gradient without the call", unit.sharded_gradient());
    }
  });
  expect_on_all_ranks(run, kState, true);
  expect_on_each_rank(run, "gradient",
                      [&](int r) { return run.at(r, "gradient without the call"); });
}

MULTI_RANK_TEST(T7_1_fully_shard_ranks,
                deferred_initialization_peaks_at_the_shards_and_one_parameter) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    std::shared_ptr<Module> model;
    live_bytes::enter(Phase::init);
    const int64_t before = live_bytes::now().total;
    const DeferredInit init([&] { model = make_model("gpt2-tiny"); });
    FullyShardOptions options;
    options.materialize = [&](const at::Tensor& p) { return init.materialize_tensor(p); };
    const auto sharded = fully_shard(*model, rank.communicator(), options);
    init.materialize_module(*model);
    rank.observe("peak", live_bytes::peak(Phase::init).total - before);
  });
  const RankRun eager = run_oracle([](TestRank& rank) {
    std::shared_ptr<Module> model;
    rank.observe("draws", kernel_calls("aten::normal_", [&] { model = make_model("gpt2-tiny"); }));
    int64_t all = 0, largest = 0;
    for (const auto& p : distinct_parameters(*model)) {
      all += static_cast<int64_t>(p.tensor.nbytes());
      largest = std::max(largest, static_cast<int64_t>(p.tensor.nbytes()));
    }
    rank.observe("all", all);
    rank.observe("largest", largest);
  });
  const auto expected = [&](const std::string& name) { return eager.at(0, name).get<int64_t>(); };
  const int64_t shard = expected("all") / world_size();
  // A recording keeps states of the random generator: one for each random operation, and one to
  // restore the generator. Each takes 5056 bytes.
  const int64_t states = (expected("draws") + 1) * 5056;
  // The number of bytes that the test allows for padding, copies of small operands, and buffers.
  const int64_t rest = 20 * 1024;
  for (int r = 0; r < world_size(); ++r) {
    const auto peak = run.at(r, "peak").get<int64_t>();
    EXPECT_GE(peak, shard) << "in bytes, on rank " << r << ": the shards alone";
    EXPECT_LE(peak, shard + expected("largest") + states + rest) << "in bytes, on rank " << r;
  }
}

MULTI_RANK_TEST(T7_1_fully_shard_ranks, buffers_stay_whole_and_training_reduces_the_loss) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    auto model = std::make_shared<ToyModel>(2);
    model->register_buffer("table", at::arange(9));
    const auto sharded = fully_shard(*model, rank.communicator());
    OptimizerOptions options;
    options.lr = 0.05;
    const auto optimizer =
        make_sharded_optimizer(sharded->units(), {{"", options}}, rank.communicator());
    std::vector<double> losses;
    for (int step = 0; step < 20; ++step) {
      const auto loss = ((*model)(toy_tokens(0)) - at::arange(5)).square().mean();
      loss.backward();
      optimizer->step();
      optimizer->zero_grad();
      losses.push_back(loss.item<double>());
    }
    rank.observe("loss falls", losses.back() < losses.front() / 2);
    rank.observe("buffer", model->named_buffers()["table"]);
    rank.observe("table", at::arange(9));
  });
  expect_on_all_ranks(run, "loss falls", true);
  expect_on_all_ranks(run, "buffer", run.at(0, "table"));
}

MULTI_RANK_TEST(T7_1_fully_shard_ranks, fully_shard_makes_units_of_the_modules_that_wrap_selects) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto units_with = [&](const std::function<WrapPolicy(ToyModel&)>& policy) {
      ToyModel model(3);
      FullyShardOptions options;
      options.wrap = policy(model);
      const auto sharded = fully_shard(model, rank.communicator(), options);
      std::string names;
      for (const auto& unit : sharded->units())
        names += unit->unit() + " ";
      return names;
    };
    rank.observe("units of a model with wrap_none()",
                 units_with([](ToyModel&) { return wrap_none(); }));
    rank.observe("the next model is sharded now", true);
    rank.observe("units of the next model, with wrap_by_hand() of blocks1",
                 units_with([](ToyModel& model) { return wrap_by_hand({model.blocks[1].get()}); }));
  });
  expect_on_all_ranks(run, "units of a model with wrap_none()", "root ");
  expect_on_all_ranks(run, "units of the next model, with wrap_by_hand() of blocks1",
                      "root blocks1 ");
}

// Cases in which fully_shard() throws: a description, and a function that changes a ToyModel or the
// options.
const std::map<std::string, std::function<void(ToyModel&, FullyShardOptions&)>> kRefused{
    {"a limit of 0", [](ToyModel&, FullyShardOptions& options) { options.limit = 0; }},
    {"a policy that throws",
     [](ToyModel&, FullyShardOptions& options) {
       options.wrap = [](Module&) -> std::vector<Module*> { throw std::invalid_argument("no"); };
     }},
    {"a null pointer for a module",
     [](ToyModel&, FullyShardOptions& options) { options.wrap = wrap_by_hand({nullptr}); }},
    {"a parameter of fp64 in the last unit",
     [](ToyModel& model, FullyShardOptions&) {
       model.blocks[2]->register_parameter("extra", at::zeros({3}, at::kDouble));
     }},
};

MULTI_RANK_TEST(T7_1_fully_shard_ranks, fully_shard_leaves_a_model_unchanged_if_it_throws) {
  for (const auto& refused : kRefused) {
    const auto& change = refused.second;
    SCOPED_TRACE(refused.first);
    const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
      ToyModel model(3);
      FullyShardOptions options;
      change(model, options);
      const at::Tensor output = model(toy_tokens(0)).detach();
      rank.observe("what fully_shard() throws",
                   thrown_by([&] { fully_shard(model, rank.communicator(), options); }));
      bool whole = true;
      for (const at::Tensor& p : model.parameters())
        whole = whole && p.storage().nbytes() == p.nbytes();
      rank.observe("every parameter has its storage", whole);
      if (whole) rank.observe("the output is as before", model(toy_tokens(0)).equal(output));
      rank.observe("calls of the module's hooks", take_calls(*rank.communicator()));
    });
    expect_error(run, "what fully_shard() throws", {"std::invalid_argument"});
    expect_on_all_ranks(run, "every parameter has its storage", true);
    expect_on_all_ranks(run, "the output is as before", true);
    expect_on_all_ranks(run, "calls of the module's hooks", "");
  }
}

}  // namespace
}  // namespace fsdp
