#pragma once

#include <comm/communicator.h>
#include <optim/gradient_buckets.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace fsdp {

// The functions of task 0's BucketReducer that ddp calls. This module must not include a header of
// a task.
class BucketReduction {
 public:
  virtual ~BucketReduction() = default;
  // Begins a backward pass that writes gradients into `buckets`, which are in the order of
  // gradient_buckets().
  virtual void begin(std::vector<at::Tensor> buckets) = 0;
  // Says that the gradient with index `gradient` is in its bucket.
  virtual void ready(size_t gradient) = 0;
  // Waits until all buckets are reduced, and returns them: they have the sums over ranks.
  virtual std::vector<at::Tensor> finish() = 0;
};

// Makes the reduction of gradients that have `numels` elements. Returns null if task 0 is not
// written.
using MakeBucketReduction = std::unique_ptr<BucketReduction> (*)(
    const std::vector<int64_t>& numels, BucketSizes sizes, std::shared_ptr<Communicator> comm);

}  // namespace fsdp
