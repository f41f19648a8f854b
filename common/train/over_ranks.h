#pragma once

#include <comm/communicator.h>

#include <vector>

namespace fsdp {

// The mean over ranks and turns of one value for each: one all-reduce of 8 bytes a turn, summed as
// the gradients are. On CUDA the CPU runs ahead of the GPU, and waits when it reads own() or
// mean().
class MeanOverRanks {
 public:
  MeanOverRanks(Communicator& comm, const at::Tensor& values);  // [turns], or [] for one

  double own() const { return mean_of(own_, 1); }  // of this rank's values
  double mean() const { return mean_of(sums_, world_size_); }

 private:
  static double mean_of(const at::Tensor& sums, int summands);

  int world_size_;
  at::Tensor own_, sums_;  // fp64 [turns], on the communicator's device
};

// `value` of every rank, by rank: one all-gather of 8 bytes per rank.
std::vector<int64_t> gather_from_ranks(Communicator& comm, int64_t value);

}  // namespace fsdp
