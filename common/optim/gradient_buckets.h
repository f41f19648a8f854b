#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fsdp {

// Gradients that are reduced together lie in one bucket. [bytes] of fp32
struct BucketSizes {
  int64_t first;
  int64_t others;
};
// A small first bucket starts the communication early. PyTorch's DDP uses the same two sizes.
inline constexpr BucketSizes kDdpBuckets{1 << 20, 25 << 20};
inline constexpr BucketSizes kBucketOfEach{0, 0};  // every gradient alone

struct GradientBuckets {
  struct Place {
    size_t bucket;
    int64_t offset;  // [elements] in the bucket
  };
  std::vector<Place> places;    // by parameter
  std::vector<int64_t> numels;  // [elements] of each bucket
};

// Fills buckets with the gradients of parameters that have `numels` elements each, from the last to
// the first: their gradients are computed in that order. A bucket is as large as `sizes` allows,
// but holds at least one gradient.
GradientBuckets gradient_buckets(const std::vector<int64_t>& numels, BucketSizes sizes);

}  // namespace fsdp
