#pragma once

#include <comm/communicator.h>

#include <vector>

namespace fsdp {

// The mean over ranks of one value of each: one all-reduce of 8 bytes. On the CPU it is known at
// once. On CUDA the CPU runs ahead of the GPU, and waits when it reads own() or mean().
class MeanOverRanks {
 public:
  MeanOverRanks(Communicator& comm, at::Tensor value);  // [], added as a tree

  double own() const { return read(own_, unread_own_); }
  double mean() const { return read(sum_, unread_sum_) / world_size_; }

 private:
  static double read(double known, const at::Tensor& unread) {
    return unread.defined() ? unread.item<double>() : known;
  }

  int world_size_;
  double own_{}, sum_{};                // on the CPU
  at::Tensor unread_own_, unread_sum_;  // [1]; undefined on the CPU
};

// `value` of every rank, by rank: one all-gather of 8 bytes per rank.
std::vector<int64_t> gather_from_ranks(Communicator& comm, int64_t value);

}  // namespace fsdp
