#include <memory/live_bytes.h>
#include <testing/provenance.h>

#include "replicated_toy.h"

namespace fsdp {
namespace {

using Shapes = std::vector<std::vector<int64_t>>;

// Four gradients in two buckets. Bucket 0 holds gradient 3, then gradient 2; bucket 1 holds
// gradient 1, then gradient 0.
const Shapes kShapes{{2, 3}, {2}, {4}, {5}};
constexpr BucketSizes kNineElements{4 * 9, 4 * 9};

std::string bucket(size_t index) {
  return "bucket " + std::to_string(index);
}

void observe_buckets(TestRank& rank, const std::vector<at::Tensor>& buckets) {
  rank.observe("number of buckets", buckets.size());
  for (size_t i = 0; i < buckets.size(); ++i)
    rank.observe(bucket(i), buckets[i]);
}

// Expects that the ranks observed these buckets. `expected[i]` has the elements of bucket i, which
// are sums over ranks.
void expect_buckets(const RankRun& run, const std::vector<std::vector<double>>& expected) {
  expect_on_all_ranks(run, "number of buckets", expected.size());
  const RankRun oracle = run_oracle([&](TestRank& rank) {
    for (size_t i = 0; i < expected.size(); ++i)
      rank.observe(bucket(i), at::tensor(expected[i], at::kFloat));
  });
  expect_as(run, oracle);
}

// Fills the place of gradient `index` with `value`, and calls ready(index).
void write(BucketReducer& reducer, size_t index, double value) {
  reducer.place(index).fill_(value);
  reducer.ready(index);
}

MULTI_RANK_SUITE(T0_2_bucket_reducer);

MULTI_RANK_TEST(T0_2_bucket_reducer, a_bucket_holds_the_sums_of_its_gradients_at_their_places) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto reducer = make_bucket_reducer(kShapes, kNineElements, rank.communicator());
    reducer->begin();
    for (const size_t i : {3U, 2U, 1U, 0U})
      write(*reducer, i, static_cast<double>(i + 1));
    observe_buckets(rank, reducer->finish());
  });
  const double w = world_size();
  expect_buckets(run, {{4 * w, 4 * w, 4 * w, 4 * w, 4 * w, 3 * w, 3 * w, 3 * w, 3 * w},
                       {2 * w, 2 * w, w, w, w, w, w, w}});
}

MULTI_RANK_TEST(T0_2_bucket_reducer, every_ranks_gradient_counts_exactly_once) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto reducer = make_bucket_reducer({{6}}, kNineElements, rank.communicator());
    reducer->begin();
    write(*reducer, 0, static_cast<double>(provenance::gradient(rank.rank(), rank.world_size())));
    rank.observe("mean", reducer->finish().at(0) / rank.world_size());
  });
  expect_mean_over_ranks(run, "mean", [](int) { return Places{{{"gradient 0", {6}, 0}}, 6, 0}; });
}

MULTI_RANK_TEST(T0_2_bucket_reducer, each_bucket_takes_one_all_reduce_in_the_order_of_buckets) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto reducer = make_bucket_reducer(kShapes, kNineElements, rank.communicator());
    reducer->begin();
    for (const size_t i : {0U, 1U, 2U, 3U})  // the gradients of bucket 1 are ready first
      write(*reducer, i, 1);
    reducer->finish();
    std::string calls;
    for (const Call& call : rank.communicator()->take_log())
      calls += call.name() + ", " + std::to_string(call.numel) + " elements; ";
    rank.observe("calls", calls);
  });
  expect_on_all_ranks(run, "calls",
                      "all_reduce bucket.0, 9 elements; all_reduce bucket.1, 8 elements; ");
}

MULTI_RANK_TEST(T0_2_bucket_reducer, place_returns_a_tensor_of_the_gradients_shape_in_a_bucket) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto reducer = make_bucket_reducer(kShapes, kNineElements, rank.communicator());
    reducer->begin();
    const auto share = [&](size_t a, size_t b) {
      return reducer->place(a).storage().is_alias_of(reducer->place(b).storage());
    };
    rank.observe("sizes of the place of gradient 0", reducer->place(0).sizes().vec());
    rank.observe("gradients 2 and 3 share a storage", share(2, 3));
    rank.observe("gradients 0 and 3 share a storage", share(0, 3));
    rank.observe("the place is a view to autograd", reducer->place(0).is_view());
    reducer->finish();
  });
  expect_on_all_ranks(run, {{"sizes of the place of gradient 0", {2, 3}},
                            {"gradients 2 and 3 share a storage", true},
                            {"gradients 0 and 3 share a storage", false},
                            {"the place is a view to autograd", false}});
}

MULTI_RANK_TEST(T0_2_bucket_reducer, a_gradient_that_a_rank_did_not_mark_ready_counts_as_zero) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto reducer = make_bucket_reducer(kShapes, kNineElements, rank.communicator());
    reducer->begin();
    write(*reducer, 3, 1);
    reducer->place(2).fill_(7);  // writes gradient 2, but ready(2) is never called
    if (rank.rank() == 0) write(*reducer, 0, 1);
    observe_buckets(rank, reducer->finish());
  });
  const double w = world_size();
  expect_buckets(run, {{w, w, w, w, w, 0, 0, 0, 0}, {0, 0, 1, 1, 1, 1, 1, 1}});
}

MULTI_RANK_TEST(T0_2_bucket_reducer, a_rank_without_ready_gradients_still_joins_all_all_reduces) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto reducer = make_bucket_reducer(kShapes, kNineElements, rank.communicator());
    reducer->begin();
    for (size_t i = 0; i < 4 && rank.rank() != 0; ++i)
      write(*reducer, i, 1);
    observe_buckets(rank, reducer->finish());
  });
  const double others = world_size() - 1;
  expect_buckets(run, {std::vector<double>(9, others), std::vector<double>(8, others)});
}

// The test calls the BucketReducer as a trainer does that sums the gradients of several backward
// passes in buckets of its own, and then reduces each bucket once. These buckets are parts of a
// larger tensor.
MULTI_RANK_TEST(T0_2_bucket_reducer, buckets_that_the_caller_provides_are_reduced_in_place) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto reducer = make_bucket_reducer(kShapes, kNineElements, rank.communicator());
    const at::Tensor both = rank.communicator()->empty(3 + 9 + 8).fill_(2);
    const at::Tensor first = both.narrow(0, 3, 9), second = both.narrow(0, 12, 8);
    reducer->begin({first, second});
    reducer->place(2).add_(1);
    reducer->ready(2);
    reducer->place(1).add_(3);
    reducer->ready(1);
    observe_buckets(rank, reducer->finish());
    rank.observe("elements before the buckets", both.narrow(0, 0, 3));
    rank.observe("bucket 1 as the caller sees it", second);
  });
  const double w = world_size();
  const std::vector<double> second{5 * w, 5 * w, 2 * w, 2 * w, 2 * w, 2 * w, 2 * w, 2 * w};
  expect_buckets(run, {{2 * w, 2 * w, 2 * w, 2 * w, 2 * w, 3 * w, 3 * w, 3 * w, 3 * w}, second});
  const RankRun oracle = run_oracle([&](TestRank& rank) {
    rank.observe("elements before the buckets", at::full({3}, 2.F));
    rank.observe("bucket 1 as the caller sees it", at::tensor(second, at::kFloat));
  });
  expect_as(run, oracle);
}

MULTI_RANK_TEST(T0_2_bucket_reducer, begin_clears_the_buckets_of_the_pass_before) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto reducer = make_bucket_reducer(kShapes, kNineElements, rank.communicator());
    for (const double value : {7, 1}) {
      reducer->begin();
      write(*reducer, 3, value);
      if (value == 1)
        observe_buckets(rank, reducer->finish());
      else
        reducer->finish();
    }
  });
  const double w = world_size();
  expect_buckets(run, {{w, w, w, w, w, 0, 0, 0, 0}, std::vector<double>(8, 0)});
}

MULTI_RANK_TEST(T0_2_bucket_reducer, buckets_count_as_live_bytes_of_gradients_and_are_freed) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto reducer = make_bucket_reducer(kShapes, kNineElements, rank.communicator());
    const int64_t before = live_bytes::now()[MemoryClass::gradients];
    const auto since = [&] { return live_bytes::now()[MemoryClass::gradients] - before; };
    reducer->begin();
    rank.observe("bytes of gradients before a place is used", since());
    write(*reducer, 2, 1);
    rank.observe("bytes of gradients when bucket 0 is used", since());
    auto buckets = reducer->finish();
    rank.observe("bytes of gradients after finish()", since());
    buckets.clear();
    rank.observe("bytes of gradients when the caller has dropped the buckets", since());
  });
  expect_on_all_ranks(run, {{"bytes of gradients before a place is used", 0},
                            {"bytes of gradients when bucket 0 is used", 9 * 4},
                            {"bytes of gradients after finish()", 17 * 4},
                            {"bytes of gradients when the caller has dropped the buckets", 0}});
}

// With shm, a tensor of Communicator::empty() lies in memory that other ranks read in place.
MULTI_RANK_TEST(T0_2_bucket_reducer, the_reducer_makes_its_buckets_with_communicator_empty) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto deleter = [](const at::Tensor& tensor) {
      return tensor.storage().data_ptr().get_deleter();
    };
    const auto reducer = make_bucket_reducer(kShapes, kNineElements, rank.communicator());
    reducer->begin();
    const at::Tensor place = reducer->place(0), lent = rank.communicator()->empty(8);
    rank.observe("the bucket is from Communicator::empty()", deleter(place) == deleter(lent));
    reducer->finish();
  });
  expect_on_all_ranks(run, "the bucket is from Communicator::empty()", true);
}

MULTI_RANK_TEST(T0_2_bucket_reducer, marking_a_gradient_ready_twice_in_a_pass_throws) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto reducer = make_bucket_reducer(kShapes, kNineElements, rank.communicator());
    reducer->begin();
    write(*reducer, 1, 1);
    rank.observe("what a second ready(1) throws", thrown_by([&] { reducer->ready(1); }));
  });
  expect_error(run, "what a second ready(1) throws", {"std::logic_error", "1"});
}

MULTI_RANK_TEST(T0_2_bucket_reducer, begin_after_an_unfinished_pass_drops_its_gradients) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto reducer = make_bucket_reducer(kShapes, kNineElements, rank.communicator());
    reducer->begin();
    for (const size_t i : {2U, 3U})
      write(*reducer, i, 5);
    reducer->begin();
    for (const size_t i : {0U, 1U, 2U, 3U})
      write(*reducer, i, 1);
    observe_buckets(rank, reducer->finish());
  });
  const double w = world_size();
  expect_buckets(run, {std::vector<double>(9, w), std::vector<double>(8, w)});
}

MULTI_RANK_TEST(T0_2_bucket_reducer, a_bucket_reducer_without_gradients_issues_no_collective) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto reducer = make_bucket_reducer({}, kNineElements, rank.communicator());
    reducer->begin();
    observe_buckets(rank, reducer->finish());
    rank.observe("calls", take_calls(*rank.communicator()));
  });
  expect_on_all_ranks(run, "calls", "");
  expect_buckets(run, {});
}

}  // namespace
}  // namespace fsdp
