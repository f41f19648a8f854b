#include <memory/live_bytes.h>
#include <testing/expected_shards.h>
#include <testing/provenance.h>

#include "small_unit.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T2_5_flat_gradient);

void set_gradient(const NamedParameter& parameter, TestRank& rank) {
  const auto value = static_cast<double>(provenance::gradient(rank.rank(), rank.world_size()));
  parameter.tensor.mutable_grad() = at::full(parameter.tensor.sizes(), value);
}

TEST_P(T2_5_flat_gradient, the_sharded_gradient_is_the_mean_over_ranks) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    FlatParameter unit = make_unit(rank);
    for (size_t i = 0; i < 3; ++i) {
      set_gradient(unit.parameters()[i], rank);
      unit.collect_gradient(i);
    }
    unit.reduce_gradient();
    unit.wait_for_reduction();
    rank.observe("gradient", unit.sharded_gradient(), places_of_shard(unit));
  });
  expect_mean_over_ranks(run, "gradient");
}

TEST_P(T2_5_flat_gradient, a_missing_gradient_counts_as_zero) {
  const RankRun oracle = run_oracle([](TestRank& rank) {
    const auto mean = static_cast<double>(provenance::mean(world_size()));
    observe_expected_shards(
        rank, "shard", {at::zeros({numel(0)}), at::zeros({numel(1)}), at::full({numel(2)}, mean)},
        world_size());
  });
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    FlatParameter unit = make_unit(rank);
    { const at::Tensor dirt = rank.communicator()->empty(4096).fill_(42); }  // poisons the arena
    set_gradient(unit.parameters()[2], rank);
    unit.collect_gradient(2);
    unit.reduce_gradient();
    unit.wait_for_reduction();
    rank.observe("gradient of p2 alone", unit.sharded_gradient(), places_of_shard(unit));
  });
  for (int r = 0; r < world_size(); ++r) {
    expect_on_rank(run, r, "gradient of p2 alone", oracle.at(0, "shard " + std::to_string(r)));
  }
}

TEST_P(T2_5_flat_gradient, a_second_reduction_adds_to_the_first) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    FlatParameter unit = make_unit(rank, {{int64_t{16} * rank.world_size()}});  // no padding
    for (int pass = 0; pass < 2; ++pass) {
      set_gradient(unit.parameters()[0], rank);
      unit.collect_gradient(0);
      unit.reduce_gradient();
      unit.wait_for_reduction();
    }
    const auto of_one = static_cast<double>(provenance::mean(rank.world_size()));
    rank.observe("passes in the gradient", unit.sharded_gradient().max().item<double>() / of_one);
  });
  expect_on_all_ranks(run, "passes in the gradient", 2.0);
}

// Of a pass that broke off: one gradient collected, one in .grad alone, one reduction under way.
TEST_P(T2_5_flat_gradient, an_abandoned_gradient_is_in_no_later_gradient) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    FlatParameter unit = make_unit(rank);
    const auto collect_all = [&] {
      for (size_t i = 0; i < 3; ++i) {
        at::Tensor& gradient = unit.parameters()[i].tensor.mutable_grad();
        const bool left = gradient.defined();
        const at::Tensor before = gradient;
        set_gradient(unit.parameters()[i], rank);
        if (left) unit.parameters()[i].tensor.mutable_grad() += before;  // as autograd does
        unit.collect_gradient(i);
      }
    };
    collect_all();
    unit.reduce_gradient();
    set_gradient(unit.parameters()[0], rank);
    unit.collect_gradient(0);
    set_gradient(unit.parameters()[1], rank);
    unit.abandon_gradient();
    rank.observe("has_gradient() after abandon_gradient()", unit.has_gradient());
    rank.observe("bytes of full gradients after abandon_gradient()",
                 live_bytes::now()[MemoryClass::gradients]);
    unit.wait_for_reduction();
    rank.observe("there is a sharded gradient", unit.sharded_gradient().defined());
    collect_all();
    unit.reduce_gradient();
    unit.wait_for_reduction();
    rank.observe("gradient", unit.sharded_gradient(), places_of_shard(unit));
  });
  expect_on_all_ranks(run, "has_gradient() after abandon_gradient()", false);
  expect_on_all_ranks(run, "bytes of full gradients after abandon_gradient()", 0);
  expect_on_all_ranks(run, "there is a sharded gradient", false);
  expect_mean_over_ranks(run, "gradient");
}

TEST_P(T2_5_flat_gradient, abandoning_a_pass_keeps_what_was_reduced_before) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    FlatParameter unit = make_unit(rank);
    for (size_t i = 0; i < 3; ++i) {
      set_gradient(unit.parameters()[i], rank);
      unit.collect_gradient(i);
    }
    unit.reduce_gradient();
    unit.wait_for_reduction();
    unit.abandon_gradient();
    rank.observe("gradient", unit.sharded_gradient(), places_of_shard(unit));
  });
  expect_mean_over_ranks(run, "gradient");
}

TEST_P(T2_5_flat_gradient, one_collective_is_issued_and_no_full_gradient_is_left) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    FlatParameter unit = make_unit(rank);
    set_gradient(unit.parameters()[0], rank);
    unit.collect_gradient(0);
    rank.observe("bytes collected", live_bytes::now()[MemoryClass::gradients]);
    live_bytes::enter(Phase::backward);
    unit.reduce_gradient();
    rank.observe("the parameter still has its .grad", unit.parameters()[0].tensor.grad().defined());
    rank.observe("has_gradient() after reduce_gradient()", unit.has_gradient());
    rank.observe("peak bytes while it is flattened", live_bytes::peak()[MemoryClass::gradients]);
    rank.observe("bytes of the flat gradient", live_bytes::now()[MemoryClass::gradients]);
    unit.wait_for_reduction();
    rank.observe("bytes of full gradients after the reduction",
                 live_bytes::now()[MemoryClass::gradients]);
    rank.observe("sharded", live_bytes::now()[MemoryClass::sharded_gradients]);
    rank.observe("calls", calls(*rank.communicator()));
  });
  const int64_t bytes = padded_numel(world_size()) * 4;
  expect_on_all_ranks(run, "the parameter still has its .grad", false);
  expect_on_all_ranks(run, "has_gradient() after reduce_gradient()", false);
  // The flat gradient may be there from the first that is collected, and .grad a view of it.
  for (int r = 0; r < world_size(); ++r) {
    const auto collected = run.at(r, "bytes collected").get<int64_t>();
    EXPECT_GE(collected, numel(0) * 4) << "rank " << r;
    EXPECT_LE(collected, numel(0) * 4 + bytes) << "rank " << r;
    EXPECT_LE(run.at(r, "peak bytes while it is flattened").get<int64_t>(), numel(0) * 4 + bytes)
        << "rank " << r;
  }
  expect_on_all_ranks(run, "bytes of the flat gradient", bytes);
  expect_on_all_ranks(run, "bytes of full gradients after the reduction", 0);
  expect_on_all_ranks(run, "sharded", bytes / world_size());
  expect_on_all_ranks(
      run, "calls",
      "reduce_scatter unit " + std::to_string(bytes / world_size() * (world_size() - 1)) + "; ");
}

}  // namespace
}  // namespace fsdp
