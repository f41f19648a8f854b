#include <base/todo.h>
#include <ddp.h>
#include <strategies/fsdp/ddp_reduction.h>

#include <cstdio>
#include <utility>

namespace fsdp {
namespace {

class DdpReduction final : public BucketReduction {
 public:
  explicit DdpReduction(std::unique_ptr<BucketReducer> reducer) : reducer_(std::move(reducer)) {}
  void begin(std::vector<at::Tensor> buckets) override { reducer_->begin(std::move(buckets)); }
  void ready(size_t gradient) override { reducer_->ready(gradient); }
  std::vector<at::Tensor> finish() override { return reducer_->finish(); }

 private:
  std::unique_ptr<BucketReducer> reducer_;
};

}  // namespace

std::unique_ptr<BucketReduction> make_ddp_reduction(const std::vector<int64_t>& numels,
                                                    BucketSizes sizes,
                                                    std::shared_ptr<Communicator> comm) {
  std::vector<std::vector<int64_t>> shapes;
  for (const int64_t numel : numels)
    shapes.push_back({numel});
  const bool leads = comm->global_rank() == 0;
  try {
    return std::make_unique<DdpReduction>(make_bucket_reducer(shapes, sizes, std::move(comm)));
  } catch (const NotStarted&) {
    if (leads)
      std::fprintf(stderr,
                   "fsdp train: make_bucket_reducer (problem 0.2) is not written, so the buckets "
                   "are reduced after backward\n");
    return nullptr;
  }
}

}  // namespace fsdp
