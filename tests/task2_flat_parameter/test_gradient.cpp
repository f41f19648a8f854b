#include <comm/tree_sum.h>
#include <memory/live_bytes.h>
#include <testing/call_text.h>
#include <testing/expected_shards.h>

#include <set>

#include "small_unit.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T2_5_flat_gradient);

MULTI_RANK_TEST(T2_5_flat_gradient,
                has_gradient_is_true_from_the_first_collected_gradient_to_the_reduction) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_unit(rank);
    set_gradient(unit->parameters()[0], rank);
    rank.observe("has_gradient() before anything is collected", unit->has_gradient());
    collect(*unit, 1, rank);
    rank.observe("has_gradient() after p1 is collected", unit->has_gradient());
    const at::Tensor gradient = unit->parameters()[1].tensor.grad();
    const auto value = static_cast<double>(provenance::gradient(rank.rank(), rank.world_size()));
    rank.observe("p1 still has its .grad",
                 gradient.defined() && (gradient == value).all().item<bool>());
    unit->mark_gradient_ready(0);
    collect(*unit, 2, rank);
    unit->reduce_gradient();
    rank.observe("has_gradient() after reduce_gradient()", unit->has_gradient());
    unit->wait_for_reduction();
    rank.observe("has_gradient() after wait_for_reduction()", unit->has_gradient());
  });
  expect_on_all_ranks(run, "has_gradient() before anything is collected", false);
  expect_on_all_ranks(run, "has_gradient() after p1 is collected", true);
  expect_on_all_ranks(run, "p1 still has its .grad", true);
  expect_on_all_ranks(run, "has_gradient() after reduce_gradient()", false);
  expect_on_all_ranks(run, "has_gradient() after wait_for_reduction()", false);
}

MULTI_RANK_TEST(T2_5_flat_gradient, the_collected_gradients_of_two_units_are_independent) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_unit(rank), other = make_unit(rank);
    collect(*unit, 1, rank);
    rank.observe("has_gradient() of a unit when only another unit has collected one",
                 other->has_gradient());
    reduce(*other);
    rank.observe("has_gradient() of a unit after another unit is reduced", unit->has_gradient());
    reduce(*unit);
  });
  expect_on_all_ranks(run, "has_gradient() of a unit when only another unit has collected one",
                      false);
  expect_on_all_ranks(run, "has_gradient() of a unit after another unit is reduced", true);
}

MULTI_RANK_TEST(T2_5_flat_gradient, the_sharded_gradient_is_the_mean_over_ranks) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_unit(rank);
    collect_all(*unit, rank);
    reduce(*unit);
    observe_gradient(rank, *unit, "gradient");
  });
  expect_mean_gradient(run, "gradient");
}

// FSDP must compute the bits of one process, which adds the gradients in the order in which the
// collectives add them, and divides the sum once.
MULTI_RANK_TEST(T2_5_flat_gradient, the_sum_of_gradients_is_divided_by_w_once_and_exactly_rounded) {
  const RankRun oracle = run_oracle([](TestRank& rank) {
    std::vector<at::Tensor> means;
    for (size_t i = 0; i < 3; ++i) {
      std::vector<at::Tensor> gradients;
      for (int r = 0; r < world_size(); ++r)
        gradients.push_back(random_gradient(r, i));
      means.push_back(sum_as_tree(gradients) / world_size());
    }
    observe_expected_shards(rank, "the sum of the ranks' gradients, divided by W", means,
                            world_size());
  });
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_unit(rank);
    for (size_t i = 0; i < 3; ++i) {
      unit->parameters()[i].tensor.mutable_grad() = random_gradient(rank.rank(), i);
      unit->mark_gradient_ready(i);
    }
    reduce(*unit);
    observe_gradient(rank, *unit, "the sum of the ranks' gradients, divided by W");
  });
  expect_shards(run, oracle, "the sum of the ranks' gradients, divided by W");
}

// Returns the name of a choice of parameters. Bit i of `choice` selects parameter pi: 0b101 gives
// "gradient of p0 p2".
std::string name_of_choice(unsigned choice) {
  std::string name = "gradient of";
  for (unsigned i = 0; i < 3; ++i)
    name += (choice >> i & 1U) != 0 ? " p" + std::to_string(i) : "";
  return choice == 0 ? "gradient of no parameter" : name;
}

MULTI_RANK_TEST(T2_5_flat_gradient, a_parameter_without_a_gradient_counts_as_zero_in_a_reduction) {
  const RankRun oracle = run_oracle([](TestRank& rank) {
    const auto mean = static_cast<double>(provenance::mean(world_size()));
    for (unsigned choice = 0; choice < 8; ++choice) {
      std::vector<at::Tensor> gradients;
      for (unsigned i = 0; i < 3; ++i)
        gradients.push_back(at::full({numel(i)}, (choice >> i & 1U) != 0 ? mean : 0));
      observe_expected_shards(rank, name_of_choice(choice), gradients, world_size());
    }
  });
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_unit(rank);
    for (unsigned choice = 0; choice < 8; ++choice) {
      for (unsigned i = 0; i < 3; ++i)
        if ((choice >> i & 1U) != 0) collect(*unit, i, rank);
      reduce(*unit);
      observe_gradient(rank, *unit, name_of_choice(choice));
      unit->clear_sharded_gradient();
    }
  });
  for (unsigned choice = 0; choice < 8; ++choice)
    expect_shards(run, oracle, name_of_choice(choice));
}

MULTI_RANK_TEST(T2_5_flat_gradient, reduce_gradient_returns_at_once_and_wait_for_reduction_waits) {
  const auto clock = std::make_shared<CountedClock>();
  const RankRun run = run_ranks(
      world_size(),
      [&](TestRank& rank) {
        const auto unit = make_unit(rank);
        collect_all(*unit, rank);
        unit->reduce_gradient();
        rank.observe("calls of reduce_gradient()", take_calls(*rank.communicator()));
        rank.observe("ns that reduce_gradient() waited", clock->now());
        unit->wait_for_reduction();
        rank.observe("ns that wait_for_reduction() waited", clock->now());
      },
      counted_link(clock));
  expect_on_all_ranks(run, "calls of reduce_gradient()", "reduce_scatter unit; ");
  expect_on_all_ranks(run, "ns that reduce_gradient() waited", 0);
  expect_on_all_ranks(run, "ns that wait_for_reduction() waited", kHop * (world_size() - 1));
}

MULTI_RANK_TEST(T2_5_flat_gradient, a_reduction_issues_one_collective_and_leaves_no_full_gradient) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_unit(rank);
    collect_all(*unit, rank);
    rank.observe("bytes collected", live_bytes::now()[MemoryClass::gradients]);
    live_bytes::enter(Phase::backward);
    unit->reduce_gradient();
    rank.observe("the parameter still has its .grad",
                 unit->parameters()[2].tensor.grad().defined());
    rank.observe("peak bytes while it is flattened", live_bytes::peak()[MemoryClass::gradients]);
    rank.observe("bytes of the flat gradient", live_bytes_in(MemoryClass::gradients));
    live_bytes::enter(Phase::optimizer);
    unit->wait_for_reduction();
    rank.observe("sharded, at the peak of wait_for_reduction(), which divides in place",
                 live_bytes::peak(Phase::optimizer)[MemoryClass::sharded_gradients]);
    rank.observe("bytes of full gradients after the reduction",
                 live_bytes::now()[MemoryClass::gradients]);
    rank.observe("bytes of the sharded gradient", live_bytes_in(MemoryClass::sharded_gradients));
    rank.observe("calls", calls(*rank.communicator()));
  });
  const int64_t bytes = padded_numel(world_size()) * 4;
  const int64_t collected_bytes = (numel(0) + numel(1) + numel(2)) * 4;
  expect_on_all_ranks(run, "the parameter still has its .grad", false);
  // A solution may make the flat gradient when it collects the first gradient. Then .grad may be a
  // view of the flat gradient.
  for (int r = 0; r < world_size(); ++r) {
    const auto collected = run.at(r, "bytes collected").get<int64_t>();
    const auto peak = run.at(r, "peak bytes while it is flattened").get<int64_t>();
    const std::string where = "rank " + std::to_string(r) + ": ";
    EXPECT_GE(collected, collected_bytes)
        << where << "mark_gradient_ready() must count the bytes of .grad as class gradients";
    EXPECT_LE(collected, collected_bytes + bytes)
        << where << "when all gradients are collected, class gradients may hold each of them, and "
        << "one flat gradient";
    EXPECT_LE(peak, collected_bytes + bytes)
        << where << "while reduce_gradient() runs, class gradients may hold the collected "
        << "gradients and one flat gradient, and no third copy";
  }
  expect_on_all_ranks(run, "bytes of the flat gradient",
                      bytes_only_in(MemoryClass::gradients, bytes));
  expect_on_all_ranks(run, "bytes of full gradients after the reduction", 0);
  expect_on_all_ranks(run, "sharded, at the peak of wait_for_reduction(), which divides in place",
                      bytes / world_size());
  expect_on_all_ranks(run, "bytes of the sharded gradient",
                      bytes_only_in(MemoryClass::sharded_gradients, bytes / world_size()));
  expect_on_all_ranks(
      run, "calls",
      "reduce_scatter unit " + std::to_string(bytes / world_size() * (world_size() - 1)) + "; ");
}

const std::string kCopiesOfFlatGradient =
    "bytes of copies for the other ranks, which read a flat gradient in place if "
    "Communicator::empty() allocated it";
const std::string kCopiesOfSum =
    "bytes of copies for the other replicas, which read the sum in place if Communicator::empty() "
    "allocated it";

MULTI_RANK_TEST(T2_5_flat_gradient, other_ranks_reduce_the_flat_gradient_without_a_copy) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_unit(rank);
    collect_all(*unit, rank);
    live_bytes::enter(Phase::backward);
    reduce(*unit);
    rank.observe(kCopiesOfFlatGradient, live_bytes::peak()[MemoryClass::communication]);
    observe_gradient(rank, *unit, "gradient");
  });
  expect_mean_gradient(run, "gradient");
  expect_on_all_ranks(run, kCopiesOfFlatGradient, 0);
}

// The mean is taken over the ranks of all replicas. In this test each replica has one rank, which
// has the whole unit.
MULTI_RANK_TEST(T2_5_flat_gradient, the_sum_is_all_reduced_over_replicas_without_a_copy) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit =
        make_flat_parameter("unit", make_parameters(kShapes), rank.hybrid(/*shard_size=*/1));
    collect_all(*unit, rank);
    live_bytes::enter(Phase::backward);
    reduce(*unit);
    rank.observe(kCopiesOfSum, live_bytes::peak()[MemoryClass::communication]);
    observe_gradient(rank, *unit, "gradient of a replica");
  });
  expect_on_all_ranks(run, kCopiesOfSum, 0);
  expect_mean_over_ranks(run, "gradient of a replica", [](int) { return places_of_rank(0, 1); });
}

MULTI_RANK_TEST(T2_5_flat_gradient, a_rank_without_gradients_takes_part_in_the_reduction) {
  const RankRun oracle = run_oracle([](TestRank& rank) {
    const int last = world_size() - 1;
    const auto mean = static_cast<double>(provenance::gradient(last, world_size())) / world_size();
    observe_expected_shards(
        rank, "gradient of p1 on the last rank",
        {at::zeros({numel(0)}), at::full({numel(1)}, mean), at::zeros({numel(2)})}, world_size());
  });
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_unit(rank);
    if (rank.rank() == rank.world_size() - 1) collect(*unit, 1, rank);
    reduce(*unit);
    rank.observe("reduce-scatters", rank.communicator()->take_log().size());
    observe_gradient(rank, *unit, "gradient of p1 on the last rank");
  });
  expect_on_all_ranks(run, "reduce-scatters", 1);
  expect_shards(run, oracle, "gradient of p1 on the last rank");
}

MULTI_RANK_TEST(T2_5_flat_gradient,
                a_gradient_is_flattened_in_row_major_order_whatever_its_strides) {
  const auto elements_in_order = [](size_t i) {
    return at::arange(numel(i), at::kFloat).view(kShapes[i]);
  };
  const RankRun oracle = run_oracle([&](TestRank& rank) {
    std::vector<at::Tensor> gradients;
    for (size_t i = 0; i < 3; ++i)
      gradients.push_back(elements_in_order(i));
    observe_expected_shards(rank, "gradients 0, 1, 2, ... that lie transposed in memory", gradients,
                            world_size());
  });
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const auto unit = make_unit(rank);
    for (size_t i = 0; i < 3; ++i) {
      // random_gradient() returns a tensor that lies transposed in memory. Its values are replaced.
      const at::Tensor transposed = random_gradient(0, i);
      unit->parameters()[i].tensor.mutable_grad() = transposed.copy_(elements_in_order(i));
      unit->mark_gradient_ready(i);
    }
    reduce(*unit);
    observe_gradient(rank, *unit, "gradients 0, 1, 2, ... that lie transposed in memory");
  });
  expect_shards(run, oracle, "gradients 0, 1, 2, ... that lie transposed in memory");
}

MULTI_RANK_TEST(T2_5_flat_gradient, with_a_gradient_divide_factor_the_sum_is_divided_by_it) {
  // The gradient divide factors with which the test runs. On one rank, both are 1.
  const std::set<int> factors{1, 2 * world_size() - 1};
  const auto name = [](int factor) { return "the sum divided by " + std::to_string(factor); };
  const RankRun oracle = run_oracle([&](TestRank& rank) {
    const auto sum = static_cast<double>(provenance::mean(world_size()) * world_size());
    for (const int factor : factors) {
      std::vector<at::Tensor> gradients;
      for (size_t i = 0; i < 3; ++i)
        gradients.push_back(at::full({numel(i)}, sum) / factor);
      observe_expected_shards(rank, name(factor), gradients, world_size());
    }
  });
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const auto unit = make_unit(rank);
    for (const int factor : factors) {
      unit->set_gradient_divide_factor(factor);
      collect_all(*unit, rank);
      reduce(*unit);
      observe_gradient(rank, *unit, name(factor));
      unit->clear_sharded_gradient();
    }
  });
  for (const int factor : factors)
    expect_shards(run, oracle, name(factor));
}

MULTI_RANK_TEST(T2_5_flat_gradient, wait_for_reduction_without_a_pending_one_changes_nothing) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_unit(rank);
    unit->wait_for_reduction();
    rank.observe("there is a gradient after waiting for nothing",
                 unit->sharded_gradient().defined());
    collect_all(*unit, rank);
    reduce(*unit);
    rank.observe("a reduction was issued and waited for", unit->sharded_gradient().defined());
    unit->wait_for_reduction();
    observe_gradient(rank, *unit, "gradient after a second wait");
  });
  expect_on_all_ranks(run, "there is a gradient after waiting for nothing", false);
  expect_mean_gradient(run, "gradient after a second wait");
}

MULTI_RANK_TEST(T2_5_flat_gradient, a_second_reduction_adds_to_the_sharded_gradient_of_the_first) {
  const RankRun oracle = run_oracle([](TestRank& rank) {
    const auto sum = 3 * static_cast<double>(provenance::mean(world_size()));
    std::vector<at::Tensor> gradients;
    for (size_t i = 0; i < 3; ++i)
      gradients.push_back(at::full({numel(i)}, sum));
    observe_expected_shards(rank, "gradient after three passes", gradients, world_size());
  });
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_unit(rank);
    const auto pass = [&] {
      collect_all(*unit, rank);
      reduce(*unit);
    };
    for (int i = 0; i < 3; ++i)
      pass();
    observe_gradient(rank, *unit, "gradient after three passes");
    rank.observe("bytes of sharded gradients and sums after three passes",
                 live_bytes_in(MemoryClass::sharded_gradients));
    unit->clear_sharded_gradient();
    pass();
    observe_gradient(rank, *unit, "gradient of the pass after clear_sharded_gradient()");
  });
  expect_on_all_ranks(
      run, "bytes of sharded gradients and sums after three passes",
      bytes_only_in(MemoryClass::sharded_gradients, padded_numel(world_size()) / world_size() * 4));
  expect_shards(run, oracle, "gradient after three passes");
  expect_mean_gradient(run, "gradient of the pass after clear_sharded_gradient()");
}

MULTI_RANK_TEST(T2_5_flat_gradient, discard_unreduced_gradients_waits_for_a_pending_reduction) {
  const auto clock = std::make_shared<CountedClock>();
  const RankRun run = run_ranks(
      world_size(),
      [&](TestRank& rank) {
        const auto unit = make_unit(rank);
        collect_all(*unit, rank);
        unit->reduce_gradient();
        rank.observe("reduce-scatters", rank.communicator()->take_log().size());
        unit->discard_unreduced_gradients();
        rank.observe("ns that discard_unreduced_gradients() waited for the reduce_scatter",
                     clock->now());
      },
      counted_link(clock));
  expect_on_all_ranks(run, "reduce-scatters", 1);
  expect_on_all_ranks(run, "ns that discard_unreduced_gradients() waited for the reduce_scatter",
                      kHop * (world_size() - 1));
}

// The unit is in a state in which a backward pass that throws may leave it: one gradient is
// collected, another one is in .grad and not collected, and a reduction is under way.
MULTI_RANK_TEST(T2_5_flat_gradient, after_discard_unreduced_gradients_no_later_gradient_has_them) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_unit(rank);
    collect_all(*unit, rank);
    unit->reduce_gradient();
    collect(*unit, 0, rank);
    set_gradient(unit->parameters()[1], rank);
    unit->discard_unreduced_gradients();
    rank.observe("p1, which was not collected, has .grad after discard_unreduced_gradients()",
                 unit->parameters()[1].tensor.grad().defined());
    rank.observe("has_gradient() after discard_unreduced_gradients()", unit->has_gradient());
    rank.observe("bytes of full gradients after discard_unreduced_gradients()",
                 live_bytes::now()[MemoryClass::gradients]);
    rank.observe("bytes of sharded gradients after discard_unreduced_gradients()",
                 live_bytes::now()[MemoryClass::sharded_gradients]);
    unit->wait_for_reduction();
    rank.observe("there is a sharded gradient", unit->sharded_gradient().defined());
    for (size_t i = 0; i < 3; ++i) {
      at::Tensor& gradient = unit->parameters()[i].tensor.mutable_grad();
      const at::Tensor before = gradient;
      set_gradient(unit->parameters()[i], rank);
      if (before.defined()) gradient += before;  // as autograd adds to an existing .grad
      unit->mark_gradient_ready(i);
    }
    reduce(*unit);
    observe_gradient(rank, *unit, "gradient");
  });
  expect_on_all_ranks(
      run, "p1, which was not collected, has .grad after discard_unreduced_gradients()", false);
  expect_on_all_ranks(run, "has_gradient() after discard_unreduced_gradients()", false);
  expect_on_all_ranks(run, "bytes of full gradients after discard_unreduced_gradients()", 0);
  expect_on_all_ranks(run, "bytes of sharded gradients after discard_unreduced_gradients()", 0);
  expect_on_all_ranks(run, "there is a sharded gradient", false);
  expect_mean_gradient(run, "gradient");
}

MULTI_RANK_TEST(T2_5_flat_gradient, discard_unreduced_gradients_keeps_what_was_reduced_before) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_unit(rank);
    collect_all(*unit, rank);
    reduce(*unit);
    unit->discard_unreduced_gradients();
    observe_gradient(rank, *unit, "gradient");
  });
  expect_mean_gradient(run, "gradient");
}

MULTI_RANK_TEST(T2_5_flat_gradient, destroying_a_flat_parameter_frees_all_its_memory) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.communicator();
    const int64_t before = live_bytes::now().total;
    {
      const auto unit = make_unit(rank);
      unit->unshard();
      collect_all(*unit, rank);
      unit->reshard();
      reduce(*unit);
      observe_gradient(rank, *unit, "gradient");
    }
    // The communicator keeps the unit's shard alive, because other ranks read it in place.
    // wait_for_readers() waits until they have read the shard, and frees it.
    rank.communicator()->wait_for_readers();
    rank.observe("bytes alive after the unit is gone", live_bytes::now().total - before);
  });
  expect_mean_gradient(run, "gradient");
  expect_on_all_ranks(run, "bytes alive after the unit is gone", 0);
}

}  // namespace
}  // namespace fsdp
