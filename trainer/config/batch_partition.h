#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace fsdp {

// Which part of the global batch each rank computes, and how the parts are added. In every turn
// each rank computes one part. The ranks of a replica hold its shards: they add their parts first.
// So the sum of a turn is a tree over the replicas of trees over their ranks, and the whole sum is
// a tree over the turns. With `reduce_last` a rank computes neighbouring parts and adds them first:
// then the whole sum is that tree over the ranks, of a tree over the turns of each. If the inner
// two of the three numbers are powers of two, that is the tree over all parts, so its bits depend
// on the number of parts alone.
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
  // Whether the whole sum is the tree over all parts.
  bool is_one_tree() const;
  // How many partial sums there are when the first `count` parts were added as far as possible.
  int partial_sums(int count) const;
};

// Adds parts that come one after another. The last partial sum is the caller's: the running sum,
// which may be several tensors. The others are put aside here.
class TreeSum {
 public:
  explicit TreeSum(BatchPartition partition) : partition_(partition) {}

  // Whether the next part belongs to another partial sum than the running one, which has to be put
  // aside before. Else the part has to be added to the running sum. (Both may be done in any case:
  // a + b and b + a have the same bits.)
  bool starts_new_partial_sum() const;
  void push_partial_sum(std::vector<at::Tensor> running) { aside_.push_back(std::move(running)); }

  // The next part is in `running` now. Adds those sums to it, in place, whose turn has come; after
  // the last part, all. Returns the running sum. An undefined tensor counts as zero.
  std::vector<at::Tensor> fold(std::vector<at::Tensor> running);

 private:
  BatchPartition partition_;
  int count_{};                                 // parts so far
  std::vector<std::vector<at::Tensor>> aside_;  // owned; the largest first
};

}  // namespace fsdp
