#include <train/over_ranks.h>

namespace fsdp {

MeanOverRanks::MeanOverRanks(Communicator& comm, at::Tensor value)
    : world_size_(comm.world_size()) {
  value = value.to(at::kDouble).reshape({1});
  if (value.is_cpu()) {
    own_ = value.item<double>();
  } else {
    unread_own_ = value.clone();
  }
  comm.all_reduce(value, kMetrics).wait();
  if (value.is_cpu()) {
    sum_ = value.item<double>();
  } else {
    unread_sum_ = std::move(value);
  }
}

std::vector<int64_t> gather_from_ranks(Communicator& comm, int64_t value) {
  const auto options = at::TensorOptions(at::kLong).device(comm.device());
  at::Tensor all = at::empty({comm.world_size()}, options);
  comm.all_gather_into(all, at::full({1}, value, options), kMetrics).wait();
  all = all.cpu();
  return {all.data_ptr<int64_t>(), all.data_ptr<int64_t>() + all.numel()};
}

}  // namespace fsdp
