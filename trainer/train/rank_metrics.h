#pragma once

#include <comm/communicator.h>

#include <vector>

namespace fsdp {

// Computes the sum and the mean of a value over the microbatches of all ranks. The constructor
// issues one all-reduce, of 8 bytes for each element of `sums`. The values are added in the order
// in which gradients are added. On CUDA the CPU runs ahead of the GPU; it waits for the GPU in
// own(), mean() and sum().
class MeanOverRanks {
 public:
  // Collective. `sums`: the values of this rank's `parts` microbatches [parts] or their sum [1], as
  // Strategy::forward_backward() returns them. If a microbatch has several values, [parts, values]
  // or [1, values].
  MeanOverRanks(Communicator& comm, const at::Tensor& sums, int parts);

  // own() returns the mean over this rank's microbatches, mean() the mean over those of all ranks.
  double own() const { return sum_of(own_).item<double>() / microbatches_; }
  double mean() const { return sum().item<double>() / (microbatches_ * world_size_); }
  // Returns the sum over the microbatches of all ranks, [] or [values], on the CPU.
  at::Tensor sum() const { return sum_of(sums_); }

 private:
  static at::Tensor sum_of(const at::Tensor& sums);

  int world_size_;
  int microbatches_;  // number of microbatches of each rank
  // own_: the constructor's `sums`; sums_: their sum over ranks, element by element. fp64, on the
  // communicator's device, of the shape of `sums`.
  at::Tensor own_, sums_;
};

// Collective; one all-gather of 8 bytes per rank. Returns each rank's `value`, in the order of
// ranks.
std::vector<int64_t> gather_from_ranks(Communicator& comm, int64_t value);

}  // namespace fsdp
