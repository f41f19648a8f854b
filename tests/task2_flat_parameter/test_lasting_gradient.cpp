#include <memory/live_bytes.h>
#include <testing/expected_shards.h>
#include <testing/shared_flag.h>

#include "small_unit.h"

// Tests of what can happen to a gradient between mark_gradient_ready() and wait_for_reduction():
// autograd adds to it, it requires a gradient itself, or its unit is destroyed.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(T2_3_end);
MULTI_RANK_SUITE(T2_5_lasting_gradient);

// Returns a run that has observed the mean over ranks of gradients that are `factor` times those of
// collect().
RankRun means_times(int factor, const std::string& name, int world_size) {
  return run_oracle([&](TestRank& rank) {
    const auto mean = static_cast<double>(factor * provenance::mean(world_size));
    std::vector<at::Tensor> gradients;
    for (size_t i = 0; i < 3; ++i)
      gradients.push_back(at::full({numel(i)}, mean));
    observe_expected_shards(rank, name, gradients, world_size);
  });
}

MULTI_RANK_TEST(T2_5_lasting_gradient,
                values_added_to_grad_after_mark_gradient_ready_are_reduced_once) {
  const std::string name = "gradient of two passes, of which the second added to .grad";
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const auto unit = make_unit(rank);
    collect_all(*unit, rank);
    const auto value = static_cast<double>(provenance::gradient(rank.rank(), rank.world_size()));
    for (size_t i = 0; i < 3; ++i)
      // In a second backward pass, autograd adds to .grad in the same way, in place.
      unit->parameters()[i].tensor.mutable_grad().add_(value);
    // The test calls mark_gradient_ready() again, as the gradient hook of task 4 does in a second
    // backward pass.
    unit->mark_gradient_ready(1);
    at::Tensor& gradient = unit->parameters()[2].tensor.mutable_grad();
    gradient = gradient.clone();  // with create_graph, autograd replaces .grad by a new tensor
    unit->mark_gradient_ready(2);
    reduce(*unit);
    observe_gradient(rank, *unit, name);
  });
  expect_shards(run, means_times(2, name, world_size()), name);
}

MULTI_RANK_TEST(T2_5_lasting_gradient,
                reduce_gradient_frees_the_graph_of_a_gradient_that_requires_a_gradient) {
  const std::string graph = "bytes of the gradients' graph after reduce_gradient()";
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const auto unit = make_unit(rank);
    const int64_t before = live_bytes::now().total;
    for (size_t i = 0; i < 3; ++i) {
      set_gradient(unit->parameters()[i], rank);
      at::Tensor& gradient = unit->parameters()[i].tensor.mutable_grad();
      const at::Tensor saved = gradient.clone().requires_grad_(true);
      gradient = saved * at::ones_like(saved);  // the graph of this product saves both factors
      unit->mark_gradient_ready(i);
    }
    unit->reduce_gradient();
    const LiveBytes now = live_bytes::now();
    rank.observe(graph, now.total - before - now[MemoryClass::gradients] -
                            now[MemoryClass::sharded_gradients]);
    unit->wait_for_reduction();
    rank.observe("the sharded gradient requires a gradient",
                 unit->sharded_gradient().requires_grad());
    observe_gradient(rank, *unit, "gradient");
  });
  expect_on_all_ranks(run, graph, 0);
  expect_on_all_ranks(run, "the sharded gradient requires a gradient", false);
  expect_mean_gradient(run, "gradient");
}

// An all-gather uses memory of the unit until it has ended, and its handle must be waited for.
MULTI_RANK_TEST(T2_3_end, destroying_a_unit_waits_for_its_pending_all_gather) {
  const auto clock = std::make_shared<CountedClock>();
  const RankRun run = run_ranks(
      world_size(),
      [&](TestRank& rank) {
        make_unit(rank)->unshard_async();
        rank.observe("ns that the destructor waited for the all_gather", clock->now());
      },
      counted_link(clock));
  expect_on_all_ranks(run, "ns that the destructor waited for the all_gather",
                      kHop * (world_size() - 1));
}

MULTI_RANK_TEST(T2_5_lasting_gradient, destroying_a_unit_waits_for_its_pending_reduction) {
  const auto clock = std::make_shared<CountedClock>();
  const RankRun run = run_ranks(
      world_size(),
      [&](TestRank& rank) {
        make_unit(rank)->reduce_gradient();
        rank.observe("ns that the destructor waited for the reduce_scatter", clock->now());
      },
      counted_link(clock));
  expect_on_all_ranks(run, "ns that the destructor waited for the reduce_scatter",
                      kHop * (world_size() - 1));
}

// Rank 0 destroys a unit while a collective of the unit is pending. This collective fails, because
// the other ranks issue another one. With only one rank, nothing fails.
void expect_dropped_error(int world_size, const std::function<void(FlatParameter&)>& issue) {
  const std::string kNext = "what a call throws after the error that the destructor dropped";
  const SharedFlag issued;
  const RankRun run = run_ranks(world_size, [&](TestRank& rank) {
    rank.communicator();
    if (rank.rank() == 0) {
      auto unit = make_unit(rank);
      issue(*unit);
      issued.set();
      rank.observe("a unit is destroyed; its destructor must not throw the error of its collective",
                   true);
      unit.reset();
    } else {
      issued.wait();
    }
    rank.observe(kNext, thrown_by([&] {
                   make_flat_parameter("another unit", make_parameters(kShapes),
                                       rank.communicator())
                       ->unshard();
                 }));
  });
  if (world_size == 1) return expect_on_all_ranks(run, kNext, kNothingThrown);
  expect_error(run, kNext, {"CollectiveError", "another unit"});
}

MULTI_RANK_TEST(T2_3_end, destroying_a_unit_drops_the_error_of_its_all_gather) {
  expect_dropped_error(world_size(), [](FlatParameter& unit) { unit.unshard_async(); });
}

MULTI_RANK_TEST(T2_5_lasting_gradient, destroying_a_unit_drops_the_error_of_its_reduction) {
  expect_dropped_error(world_size(), [](FlatParameter& unit) { unit.reduce_gradient(); });
}

MULTI_RANK_TEST(T2_3_end, a_unit_destroyed_by_an_exception_waits_for_no_collective) {
  const auto clock = std::make_shared<CountedClock>();
  const RankRun run = run_ranks(
      world_size(),
      [&](TestRank& rank) {
        rank.observe("what was thrown", thrown_by([&] {
                       const auto unit = make_unit(rank);
                       unit->unshard_async();
                       unit->reduce_gradient();
                       throw std::runtime_error("no");
                     }));
        rank.observe("ns that the destructor waited", clock->now());
      },
      counted_link(clock));
  expect_error(run, "what was thrown", {"std::runtime_error", "no"});
  expect_on_all_ranks(run, "ns that the destructor waited", 0);
}

}  // namespace
}  // namespace fsdp
