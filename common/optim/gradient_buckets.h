#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fsdp {

// The most [bytes] of fp32 gradients in the first bucket and in each of the others. The gradients
// of one bucket are reduced together.
struct BucketSizes {
  int64_t first;
  int64_t others;
};
// A small first bucket starts the communication early. PyTorch's DDP uses the same two sizes.
inline constexpr BucketSizes kDdpBuckets{1 << 20, 25 << 20};
inline constexpr BucketSizes kBucketOfEach{0, 0};  // one bucket for each gradient

struct GradientBuckets {
  struct Place {
    size_t bucket;
    int64_t offset;  // [elements] in the bucket
  };
  std::vector<Place> places;    // by parameter
  std::vector<int64_t> numels;  // [elements] of each bucket
};

// Assigns gradients to buckets. `numels` has the number of elements of each parameter. The buckets
// are filled from the last parameter to the first, because gradients are computed in about this
// order. A bucket has at most the size that `sizes` allows, but at least one gradient.
GradientBuckets gradient_buckets(const std::vector<int64_t>& numels, BucketSizes sizes);

}  // namespace fsdp
