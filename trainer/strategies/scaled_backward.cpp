#include <base/torch.h>
#include <strategies/scaled_backward.h>

namespace fsdp {

void scaled_backward(const at::Tensor& loss, int64_t scale) {
  loss.backward(at::full_like(loss, scale));
}

}  // namespace fsdp
