#pragma once

#include <comm/communicator.h>

#include <vector>

namespace fsdp {

// The sum and the mean of a value of every part, over all ranks: one all-reduce of 8 bytes for each
// sum, summed as the gradients are. On CUDA the CPU runs ahead of the GPU, and waits when it reads
// own() or mean().
class MeanOverRanks {
 public:
  // `sums` [n]: of the values of this rank's `parts` parts, as Strategy::forward_backward() returns
  // them; or [n, values].
  MeanOverRanks(Communicator& comm, const at::Tensor& sums, int parts);

  double own() const {
    return sum_of(own_).item<double>() / microbatches_;
  }  // of this rank's parts
  double mean() const { return sum().item<double>() / (microbatches_ * world_size_); }
  at::Tensor sum() const { return sum_of(sums_); }  // [] or [values], on the CPU

 private:
  static at::Tensor sum_of(const at::Tensor& sums);

  int world_size_;
  int microbatches_;       // of each rank
  at::Tensor own_, sums_;  // fp64 [n] or [n, values], on the communicator's device
};

// `value` of every rank, by rank: one all-gather of 8 bytes per rank.
std::vector<int64_t> gather_from_ranks(Communicator& comm, int64_t value);

}  // namespace fsdp
