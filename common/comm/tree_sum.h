#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace fsdp {

// The order in which parts are added, in every transport and every mode: as a binary tree. The sum
// of n parts is the sum of the first m plus the sum of the others, where m is the largest power of
// two below n: (0+1)+2, (0+1)+(2+3), ((0+1)+(2+3))+4. So whoever holds 2^k neighbours that begin at
// a multiple of 2^k may add them first: the bits of the whole sum stay the same.

// output[0, numel) <- the sum of the parts. The parts are of `dtype`. Their sum is taken in
// `dtype`, or in fp32 if `dtype` is narrower, and is then rounded once to `output_dtype`. The
// output may be one of the parts, if it is of their dtype.
void sum_as_tree(void* output, at::ScalarType output_dtype, const std::vector<const void*>& parts,
                 int64_t numel, at::ScalarType dtype);

// The same of tensors of one shape and dtype, on the CPU, as a new tensor.
at::Tensor sum_as_tree(const std::vector<at::Tensor>& parts);

// Which part of the global batch each rank computes, and how the parts are added. In every turn
// each rank computes one part. The ranks of a replica hold its shards: they add their parts first.
// So the sum of a turn is a tree over the replicas of trees over their ranks, and the whole sum is
// a tree over the turns. With `turns_first` a rank computes neighbouring parts and adds them first:
// then the whole sum is that tree over the ranks, of a tree over the turns of each. If the inner
// two of the three numbers are powers of two, that is the tree over all parts, so its bits depend
// on the number of parts alone.
struct Arrangement {
  int shards{1};  // ranks of a replica
  int replicas{1};
  int turns{1};
  bool turns_first{};

  int ranks() const { return shards * replicas; }
  int parts() const { return ranks() * turns; }
  int part(int rank, int turn) const {
    return turns_first ? rank * turns + turn : turn * ranks() + rank;
  }
  // How many partial sums there are when the first `count` parts were added as far as possible.
  int partial_sums(int count) const;
};

// Adds parts that come one after another. The last partial sum is the caller's: the running sum,
// which may be several tensors. The others are put aside here.
class TreeSum {
 public:
  explicit TreeSum(Arrangement arrangement) : arrangement_(arrangement) {}

  // Whether the next part belongs to another partial sum than the running one, which has to be put
  // aside before. Else the part has to be added to the running sum. (Both may be done in any case:
  // a + b and b + a have the same bits.)
  bool puts_aside() const;
  void put_aside(std::vector<at::Tensor> running) { aside_.push_back(std::move(running)); }

  // The next part is in `running` now. Adds those sums to it, in place, whose turn has come; after
  // the last part, all. Returns the running sum. An undefined tensor counts as zero.
  std::vector<at::Tensor> added(std::vector<at::Tensor> running);

 private:
  Arrangement arrangement_;
  int count_{};                                 // parts so far
  std::vector<std::vector<at::Tensor>> aside_;  // owned; the largest first
};

}  // namespace fsdp
