#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace fsdp {

// Assigns the microbatches of the global batch (the parts of --microbatches) to ranks, and fixes
// the order in which their gradients are added. A rank computes one microbatch in each turn. The
// ranks of a replica hold its shards, so they add their microbatches first.
// - Default: the sum of a turn is a tree over the replicas of trees over their ranks. The whole sum
//   is a tree over the turns.
// - reduce_last: a rank computes neighbouring microbatches and adds them first, as a tree. The
//   whole sum is a tree over the replicas of trees over their ranks.
// - If the two inner of the three numbers (shards, replicas, turns) are powers of two, the whole
//   sum is the binary tree over all microbatches. Then its bits depend only on the number of
//   microbatches.
struct BatchPartition {
  int shards{1};  // ranks of a replica
  int replicas{1};
  int accumulation_steps{1};
  bool reduce_last{};

  int ranks() const { return shards * replicas; }
  int microbatches() const { return ranks() * accumulation_steps; }
  int microbatch(int rank, int turn) const {
    return reduce_last ? rank * accumulation_steps + turn : turn * ranks() + rank;
  }
  // Returns whether the whole sum is the binary tree over all microbatches.
  bool is_one_tree() const;
  // Returns the number of partial sums after the first `count` microbatches were added as far as
  // possible.
  int partial_sums(int count) const;
};

// Adds microbatches that arrive one after another. The caller holds the last partial sum, called
// the running sum, which can be several tensors. This object holds the partial sums before it.
class TreeSum {
 public:
  explicit TreeSum(BatchPartition partition) : partition_(partition) {}

  // Returns whether the next microbatch starts a new partial sum. If so, call push_partial_sum()
  // with the running sum first; if not, add the microbatch to the running sum. (The caller may put
  // the running sum aside in any case: then fold() adds the two, and a + b has the bits of b + a.)
  bool starts_new_partial_sum() const;
  void push_partial_sum(std::vector<at::Tensor> running) { aside_.push_back(std::move(running)); }

  // Call it when `running` includes the next microbatch. Adds to `running`, in place, the sums put
  // aside that belong to the same partial sum; after the last microbatch, all of them. Returns the
  // running sum. An undefined tensor counts as zero.
  std::vector<at::Tensor> fold(std::vector<at::Tensor> running);

 private:
  BatchPartition partition_;
  int count_{};                                 // microbatches so far
  std::vector<std::vector<at::Tensor>> aside_;  // sums put aside, owned; the largest first
};

}  // namespace fsdp
