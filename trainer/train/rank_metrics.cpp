#include <comm/tree_sum.h>
#include <train/rank_metrics.h>

namespace fsdp {

MeanOverRanks::MeanOverRanks(Communicator& comm, const at::Tensor& sums, int parts)
    : world_size_(comm.world_size()),
      microbatches_(parts),
      own_(sums.to(at::kDouble)),
      sums_(own_.clone()) {
  comm.all_reduce(sums_, kMetrics).wait();
}

at::Tensor MeanOverRanks::sum_of(const at::Tensor& sums) {
  return sum_as_tree(sums.cpu().unbind());
}

std::vector<int64_t> gather_from_ranks(Communicator& comm, int64_t value) {
  const auto options = at::TensorOptions(at::kLong).device(comm.device());
  at::Tensor all = at::empty({comm.world_size()}, options);
  comm.all_gather_into(all, at::full({1}, value, options), kMetrics).wait();
  all = all.cpu();
  return {all.data_ptr<int64_t>(), all.data_ptr<int64_t>() + all.numel()};
}

}  // namespace fsdp
