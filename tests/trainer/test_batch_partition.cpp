#include <base/torch.h>
#include <config/batch_partition.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <common/in_a_process.h>
#include <common/parts.h>

namespace fsdp {
namespace {

std::string text(const BatchPartition& partition) {
  return std::to_string(partition.shards) + " shards, " + std::to_string(partition.replicas) +
         " replicas, " + std::to_string(partition.accumulation_steps) + " turns" +
         (partition.reduce_last ? " first" : "");
}

// Returns every partition with 1 to 4 shards, 1 to 4 replicas and 1 to 4 accumulation steps, each
// with and without reduce_last.
std::vector<BatchPartition> all_partitions() {
  std::vector<BatchPartition> all;
  for (int shards = 1; shards <= 4; ++shards)
    for (int replicas = 1; replicas <= 4; ++replicas)
      for (int accumulation_steps = 1; accumulation_steps <= 4; ++accumulation_steps)
        for (const bool reduce_last : {false, true})
          all.push_back({shards, replicas, accumulation_steps, reduce_last});
  return all;
}

// Returns the sum of the leaves as a tree in which neighbours are added. The left subtree is the
// largest complete one.
at::Tensor tree_of(const std::vector<at::Tensor>& leaves) {
  if (leaves.size() == 1) return leaves[0];
  size_t left = 1;
  while (2 * left < leaves.size())
    left *= 2;
  const auto middle = leaves.begin() + static_cast<std::ptrdiff_t>(left);
  return tree_of({leaves.begin(), middle}) + tree_of({middle, leaves.end()});
}

// Returns the sum over ranks that batch_partition.h promises, in which `leaf(rank)` is what a rank
// adds. The values of the shards of each replica are added as a tree, and then the sums of the
// replicas as a tree.
template <class Leaf>
at::Tensor sum_of_ranks(const BatchPartition& partition, const Leaf& leaf) {
  std::vector<at::Tensor> replicas;
  for (int replica = 0; replica < partition.replicas; ++replica) {
    std::vector<at::Tensor> shards;
    for (int shard = 0; shard < partition.shards; ++shard)
      shards.push_back(leaf(replica * partition.shards + shard));
    replicas.push_back(tree_of(shards));
  }
  return tree_of(replicas);
}

// Returns the sum that batch_partition.h promises for the microbatches of all ranks in all
// accumulation steps.
at::Tensor promised_sum(const BatchPartition& partition) {
  const auto of_rank_and_turn = [&](int rank, int turn) {
    return part(partition.microbatch(rank, turn));
  };
  std::vector<at::Tensor> accumulation_steps;
  if (partition.reduce_last) {
    return sum_of_ranks(partition, [&](int rank) {
      std::vector<at::Tensor> of_rank;
      for (int turn = 0; turn < partition.accumulation_steps; ++turn)
        of_rank.push_back(of_rank_and_turn(rank, turn));
      return tree_of(of_rank);
    });
  }
  for (int turn = 0; turn < partition.accumulation_steps; ++turn)
    accumulation_steps.push_back(
        sum_of_ranks(partition, [&](int rank) { return of_rank_and_turn(rank, turn); }));
  return tree_of(accumulation_steps);
}

struct Sum {
  at::Tensor tensor;
  // The largest number of partial sums that were alive at a time, the running sum included.
  int most{1};
};

// Adds part(i), the values of microbatch i, in the order of i. Before a microbatch, pushes the
// running sum if TreeSum asks for it or if `always_aside` is true. Otherwise adds the microbatch to
// the running sum.
Sum sum_one_after_another(const BatchPartition& partition, bool always_aside) {
  TreeSum sum(partition);
  Sum result;
  for (int i = 0; i < partition.microbatches(); ++i) {
    if (i > 0 && (always_aside || sum.starts_new_partial_sum())) {
      sum.push_partial_sum({result.tensor});
      result.most = std::max(result.most, partition.partial_sums(i) + 1);
      result.tensor = part(i);
    } else {
      result.tensor = i == 0 ? part(i) : result.tensor + part(i);
    }
    result.tensor = sum.fold({result.tensor})[0];
  }
  return result;
}

TEST(BatchPartition, a_batch_partition_assigns_each_microbatch_to_one_rank_and_accumulation_step) {
  for (const BatchPartition& partition : all_partitions()) {
    std::set<int> parts;
    for (int rank = 0; rank < partition.ranks(); ++rank)
      for (int turn = 0; turn < partition.accumulation_steps; ++turn)
        parts.insert(partition.microbatch(rank, turn));
    EXPECT_EQ(parts.size(), static_cast<size_t>(partition.microbatches())) << text(partition);
    EXPECT_EQ(*parts.begin(), 0) << text(partition);
    EXPECT_EQ(*parts.rbegin(), partition.microbatches() - 1) << text(partition);
  }
  EXPECT_EQ((BatchPartition{.shards = 2, .replicas = 2, .accumulation_steps = 3}.microbatch(2, 1)),
            6);
  EXPECT_EQ(
      (BatchPartition{.shards = 2, .replicas = 2, .accumulation_steps = 3, .reduce_last = true}
           .microbatch(2, 1)),
      7);
}

TEST_IN_A_PROCESS(TreeSum,
                  a_tree_sum_adds_microbatches_in_the_order_that_its_batch_partition_fixes) {
  for (const BatchPartition& partition : all_partitions()) {
    const at::Tensor expected = promised_sum(partition);
    for (const bool always_aside : {false, true})
      EXPECT_TRUE(sum_one_after_another(partition, always_aside).tensor.equal(expected))
          << text(partition) << (always_aside ? ", each part put aside" : "");
  }
}

TEST_IN_A_PROCESS(TreeSum,
                  is_one_tree_is_true_exactly_if_all_microbatches_are_added_as_one_binary_tree) {
  for (int count = 1; count <= 8; ++count)
    EXPECT_TRUE(tree_of(parts(count)).equal(sum_by_hand(parts(count)))) << count << " parts";
  for (const BatchPartition& partition : all_partitions()) {
    const bool one_tree = promised_sum(partition).equal(tree_of(parts(partition.microbatches())));
    EXPECT_EQ(partition.is_one_tree(), one_tree) << text(partition);
  }
}

// A running sum that is pushed stays in memory beside the new running sum. A microbatch that is
// added to the running sum takes no memory.
TEST_IN_A_PROCESS(TreeSum,
                  a_running_sum_is_pushed_only_if_the_next_microbatch_starts_a_new_partial_sum) {
  // The expected values of Sum::most, for 1, 2, ..., 8 accumulation steps.
  const std::vector<int> most{1, 1, 1, 2, 2, 2, 2, 3};
  for (int accumulation_steps = 1; accumulation_steps <= 8; ++accumulation_steps)
    EXPECT_EQ(sum_one_after_another({.accumulation_steps = accumulation_steps}, false).most,
              most[static_cast<size_t>(accumulation_steps) - 1])
        << accumulation_steps << " turns";
}

// If a microbatch does not use a parameter, the parameter has no gradient.
TEST_IN_A_PROCESS(TreeSum, a_tree_sum_counts_an_undefined_gradient_as_zero) {
  TreeSum sum({.accumulation_steps = 3});
  sum.fold({part(0), at::Tensor(), at::Tensor()});
  sum.push_partial_sum({part(0), at::Tensor(), at::Tensor()});
  const auto two = sum.fold({at::Tensor(), part(1), at::Tensor()});
  EXPECT_TRUE(at::equal(two[0], part(0)));
  EXPECT_TRUE(at::equal(two[1], part(1)));
  EXPECT_FALSE(two[2].defined());
}

}  // namespace
}  // namespace fsdp
