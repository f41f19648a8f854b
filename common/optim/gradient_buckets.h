#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fsdp {

// The largest size [bytes], in fp32, of the first bucket of gradients and of each other bucket. The
// gradients of one bucket are reduced together.
struct BucketSizes {
  int64_t first;
  int64_t others;
};
// 1 MiB for the first bucket and 25 MiB for each other one, as in PyTorch's DDP. A small first
// bucket starts the communication early.
inline constexpr BucketSizes kDdpBuckets{1 << 20, 25 << 20};
inline constexpr BucketSizes kBucketOfEach{0, 0};  // sizes that give each gradient its own bucket

struct GradientBuckets {
  struct Place {
    size_t bucket;
    int64_t offset;  // number of elements from the beginning of the bucket to the gradient
  };
  std::vector<Place> places;    // for each parameter, the place of its gradient
  std::vector<int64_t> numels;  // for each bucket, the number of its elements
};

// Assigns gradients to buckets. `numels` has the number of elements of each parameter. The buckets
// are filled from the last parameter to the first, because gradients are computed in about this
// order. A bucket has at most the size that `sizes` allows, except that a larger gradient has a
// bucket of its own.
GradientBuckets gradient_buckets(const std::vector<int64_t>& numels, BucketSizes sizes);

}  // namespace fsdp
