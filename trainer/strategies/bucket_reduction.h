#pragma once

#include <comm/communicator.h>
#include <optim/gradient_buckets.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace fsdp {

// The functions that ddp calls of BucketReducer, the class of task 0. ddp calls them through this
// interface, because trainer/strategies must not include a header of a task.
class BucketReduction {
 public:
  virtual ~BucketReduction() = default;
  // Call it before a backward pass that writes gradients into `buckets`, which are in the order of
  // gradient_buckets().
  virtual void begin(std::vector<at::Tensor> buckets) = 0;
  // Call it in the backward pass when the gradient with the index `gradient` is complete in its
  // bucket.
  virtual void ready(size_t gradient) = 0;
  // Waits until all buckets are reduced, and returns them; they have the sums over ranks.
  virtual std::vector<at::Tensor> finish() = 0;
};

// The type of a function that makes the BucketReduction for gradients whose numbers of elements are
// `numels`. The function returns null if the student has not written make_bucket_reducer() of task
// 0.
using MakeBucketReduction = std::unique_ptr<BucketReduction> (*)(
    const std::vector<int64_t>& numels, BucketSizes sizes, std::shared_ptr<Communicator> comm);

}  // namespace fsdp
