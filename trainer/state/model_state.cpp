#include <state/model_state.h>

#include <functional>
#include <numeric>

namespace fsdp {

int64_t ModelState::Parameter::numel() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

const char* to_string(StateKind kind) {
  constexpr std::array kNames{"parameter", "exp_avg", "exp_avg_sq", "step"};
  return kNames[static_cast<size_t>(kind)];
}

const at::Tensor& tensor_of(const StateRange& range, StateKind kind) {
  const std::array tensors{&range.value, &range.exp_avg, &range.exp_avg_sq, &range.step};
  return *tensors[static_cast<size_t>(kind)];
}

}  // namespace fsdp
