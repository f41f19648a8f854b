#pragma once

#include <comm/communicator.h>
#include <optim/gradient_buckets.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace fsdp {

// What ddp needs of the BucketReducer of task 0, which this module must not include.
class BucketReduction {
 public:
  virtual ~BucketReduction() = default;
  // Begins a backward pass that writes gradients into `buckets`, in the order of
  // gradient_buckets().
  virtual void begin(std::vector<at::Tensor> buckets) = 0;
  virtual void ready(size_t gradient) = 0;       // the gradient of this index is in its bucket
  virtual std::vector<at::Tensor> finish() = 0;  // returns the sums over ranks, when all are there
};

// Makes the reduction of gradients with these numbers of elements. Returns null if task 0 is not
// written.
using MakeBucketReduction = std::unique_ptr<BucketReduction> (*)(
    const std::vector<int64_t>& numels, BucketSizes sizes, std::shared_ptr<Communicator> comm);

}  // namespace fsdp
