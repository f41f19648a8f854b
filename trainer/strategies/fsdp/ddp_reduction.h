#pragma once

#include <strategies/bucket_reduction.h>

namespace fsdp {

// Returns a BucketReduction that calls the BucketReducer of task 0. If make_bucket_reducer() is not
// written, returns null, and rank 0 prints on stderr that the buckets are reduced after backward.
std::unique_ptr<BucketReduction> make_ddp_reduction(const std::vector<int64_t>& numels,
                                                    BucketSizes sizes,
                                                    std::shared_ptr<Communicator> comm);

}  // namespace fsdp
