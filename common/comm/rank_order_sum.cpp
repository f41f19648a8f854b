#include <base/torch.h>
#include <comm/rank_order_sum.h>

#include <algorithm>
#include <cstring>

namespace fsdp {
namespace {

// Elements whose sum stays in the cache while parts are added; too few for torch to wake its
// threads.
constexpr int64_t kChunk = 16384;

at::Tensor view(const void* data, int64_t numel, at::ScalarType dtype) {
  return at::from_blob(const_cast<void*>(data), {numel}, dtype);
}

}  // namespace

void sum_in_rank_order(void* output, const std::vector<const void*>& parts, int64_t numel,
                       at::ScalarType dtype) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  auto element = static_cast<int64_t>(c10::elementSize(dtype));
  at::Tensor scratch = at::empty({std::min(numel, kChunk)}, dtype);
  for (int64_t begin = 0; begin < numel; begin += kChunk) {
    int64_t count = std::min(kChunk, numel - begin);
    auto chunk = [&](const void* part) { return static_cast<const char*>(part) + begin * element; };
    std::memcpy(scratch.data_ptr(), chunk(parts[0]), count * element);
    at::Tensor sum = scratch.narrow(0, 0, count);
    for (size_t rank = 1; rank < parts.size(); ++rank) {
      sum.add_(view(chunk(parts[rank]), count, dtype));
    }
    std::memcpy(static_cast<char*>(output) + begin * element, scratch.data_ptr(), count * element);
  }
}

}  // namespace fsdp
