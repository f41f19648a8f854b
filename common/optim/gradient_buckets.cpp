#include <optim/gradient_buckets.h>

namespace fsdp {

GradientBuckets gradient_buckets(const std::vector<int64_t>& numels, BucketSizes sizes) {
  GradientBuckets buckets;
  buckets.places.resize(numels.size());
  int64_t room = 0;  // number of elements for which the bucket begun last still has space
  for (size_t i = numels.size(); i-- > 0;) {
    if (buckets.numels.empty() || numels[i] > room) {
      room = (buckets.numels.empty() ? sizes.first : sizes.others) / int64_t{sizeof(float)};
      buckets.numels.push_back(0);
    }
    buckets.places[i] = {buckets.numels.size() - 1, buckets.numels.back()};
    buckets.numels.back() += numels[i];
    room -= numels[i];
  }
  return buckets;
}

}  // namespace fsdp
