#pragma once

#include <comm/communicator.h>

#include <vector>

namespace fsdp {

// Computes the sum and the mean of a value over the microbatches of all ranks, with one all-reduce
// of 8 bytes for each element of `sums`. Adds the values in the order in which gradients are added.
// On CUDA the CPU runs ahead of the GPU; it waits when it calls own(), mean() or sum().
class MeanOverRanks {
 public:
  // Collective. `sums` [n]: the values of this rank's `parts` microbatches, or their sum, as
  // Strategy::forward_backward() returns them; or [n, values].
  MeanOverRanks(Communicator& comm, const at::Tensor& sums, int parts);

  // Returns the mean over this rank's microbatches.
  double own() const { return sum_of(own_).item<double>() / microbatches_; }
  double mean() const { return sum().item<double>() / (microbatches_ * world_size_); }
  at::Tensor sum() const { return sum_of(sums_); }  // [] or [values], on the CPU

 private:
  static at::Tensor sum_of(const at::Tensor& sums);

  int world_size_;
  int microbatches_;       // microbatches of each rank
  at::Tensor own_, sums_;  // fp64 [n] or [n, values], on the communicator's device
};

// Collective; one all-gather of 8 bytes per rank. Returns `value` of every rank, by rank.
std::vector<int64_t> gather_from_ranks(Communicator& comm, int64_t value);

}  // namespace fsdp
