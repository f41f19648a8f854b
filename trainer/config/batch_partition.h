#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace fsdp {

// Assigns the microbatches of the global batch to ranks, and fixes the order in which the gradients
// of the microbatches are added. In each of its accumulation steps a rank computes one microbatch.
// To add values "as a tree" is to add them as the binary tree of comm/tree_sum.h.
// - Default: in each accumulation step, the ranks of a replica add the gradients of their
//   microbatches as a tree, and the replicas add their sums as a tree. The sums of all accumulation
//   steps are added as a tree.
// - reduce_last: a rank computes neighbouring microbatches and first adds their gradients as a
//   tree. Then the ranks of a replica add their sums as a tree. Then the replicas add their sums as
//   a tree.
// - If two sizes are powers of two (by default `shards` and `replicas`; with reduce_last
//   `accumulation_steps` and `shards`), the whole sum is the binary tree over all microbatches.
//   Then the bits of the sum depend only on the number of microbatches.
struct BatchPartition {
  int shards{1};  // number of ranks over which a replica of the model is sharded
  int replicas{1};
  int accumulation_steps{1};  // number of microbatches of each rank
  // true: a rank first adds the gradients of all its microbatches, and then sends the sum.
  bool reduce_last{};

  int ranks() const { return shards * replicas; }
  int microbatches() const { return ranks() * accumulation_steps; }
  // Returns the index of the microbatch that `rank` computes in its accumulation step `turn`.
  int microbatch(int rank, int turn) const {
    return reduce_last ? rank * accumulation_steps + turn : turn * ranks() + rank;
  }
  // Returns whether the sum over all microbatches is one binary tree over them. Then its bits
  // depend only on the number of microbatches.
  bool is_one_tree() const;
  // Returns how many partial sums remain when the first `count` microbatches have been computed, in
  // the order of their indices, and the tree has added all that it can add so far.
  int partial_sums(int count) const;
};

// Adds the gradients of microbatches, one microbatch after another, in the order of a
// BatchPartition. The caller holds the latest partial sum, called the running sum, as a list of
// tensors. This object holds the earlier partial sums.
class TreeSum {
 public:
  explicit TreeSum(BatchPartition partition) : partition_(partition) {}

  // Returns whether the next microbatch starts a new partial sum. If it does, pass the running sum
  // to push_partial_sum() before you compute the microbatch; if it does not, add the gradients of
  // the microbatch to the running sum. (The caller may also push the running sum before every
  // microbatch but the first. Then fold() adds it to the gradients of the microbatch, with equal
  // bits: a + b has the bits of b + a.)
  bool starts_new_partial_sum() const;
  void push_partial_sum(std::vector<at::Tensor> running) { aside_.push_back(std::move(running)); }

  // Call it after each microbatch, when the running sum `running` includes the gradients of this
  // microbatch. Adds to `running`, in place, the pushed partial sums that the tree adds to it now;
  // after the last microbatch, all pushed partial sums. Returns the running sum. An undefined
  // tensor counts as zero.
  std::vector<at::Tensor> fold(std::vector<at::Tensor> running);

 private:
  BatchPartition partition_;
  int count_{};  // number of calls of fold() so far, one for each microbatch
  // The partial sums that the caller has pushed and that fold() has not added yet; the oldest
  // first. This object keeps their tensors until fold() adds them.
  std::vector<std::vector<at::Tensor>> aside_;
};

}  // namespace fsdp
