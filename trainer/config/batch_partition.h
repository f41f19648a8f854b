#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace fsdp {

// Assigns the microbatches of the global batch to ranks, and fixes the order in which their
// gradients are added. In each of its accumulation steps a rank computes one microbatch.
// - Default: for each accumulation step, the ranks of a replica add their microbatches as a tree,
//   and the replicas add their sums as a tree. The whole sum is a tree over the accumulation steps.
// - reduce_last: a rank computes neighbouring microbatches and adds them first, as a tree. The
//   ranks of a replica add their sums as a tree, and then the replicas do so.
// - If two sizes are powers of two (by default shards and replicas, with reduce_last
//   accumulation_steps and shards), the whole sum is the binary tree over all microbatches. Then
//   its bits depend only on the number of microbatches.
struct BatchPartition {
  int shards{1};  // ranks of a replica
  int replicas{1};
  int accumulation_steps{1};  // microbatches of a rank
  bool reduce_last{};         // a rank adds up its microbatches before it sends gradients

  int ranks() const { return shards * replicas; }
  int microbatches() const { return ranks() * accumulation_steps; }
  // Returns the index of the microbatch that `rank` computes in its accumulation step `turn`.
  int microbatch(int rank, int turn) const {
    return reduce_last ? rank * accumulation_steps + turn : turn * ranks() + rank;
  }
  // Returns whether the whole sum is the binary tree over all microbatches.
  bool is_one_tree() const;
  // Returns how many partial sums remain when the first `count` microbatches have been computed, in
  // the order of their indices, and all that the tree can add so far has been added.
  int partial_sums(int count) const;
};

// Adds the gradients of microbatches, one microbatch after another. The caller holds the latest
// partial sum, called the running sum, which can be several tensors. This object holds the earlier
// partial sums.
class TreeSum {
 public:
  explicit TreeSum(BatchPartition partition) : partition_(partition) {}

  // Returns whether the next microbatch starts a new partial sum. If so, pass the running sum to
  // push_partial_sum() before you compute the microbatch; if not, add the gradients of the
  // microbatch to the running sum. (The caller may push the running sum before every microbatch but
  // the first. Then fold() adds it to the gradients of the microbatch, with equal bits: a + b has
  // the bits of b + a.)
  bool starts_new_partial_sum() const;
  void push_partial_sum(std::vector<at::Tensor> running) { aside_.push_back(std::move(running)); }

  // Call it after each microbatch, when `running` includes this microbatch. Adds to `running`, in
  // place, the pushed sums that belong to the same partial sum; after the last microbatch, all of
  // them. Returns the running sum. An undefined tensor counts as zero.
  std::vector<at::Tensor> fold(std::vector<at::Tensor> running);

 private:
  BatchPartition partition_;
  int count_{};                                 // microbatches so far
  std::vector<std::vector<at::Tensor>> aside_;  // pushed sums, owned; the oldest first
};

}  // namespace fsdp
