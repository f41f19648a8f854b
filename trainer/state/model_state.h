#pragma once

#include <optim/state_range.h>

#include <array>
#include <vector>

namespace fsdp {

// The parameters of a model, followed by its buffers, and the ranges of their state that this rank
// has.
struct ModelState {
  struct Parameter {
    std::string name;
    std::vector<int64_t> sizes;
    at::ScalarType dtype{at::kFloat};  // another dtype: a buffer

    int64_t numel() const;
    bool operator==(const Parameter&) const = default;
  };
  std::vector<Parameter> parameters;  // distinct, in the order of first registration
  // Two ranks have either equal ranges or ranges without common elements.
  std::vector<StateRange> ranges;
};

// The kinds of tensors that a StateRange can have for its elements.
enum class StateKind { parameter, exp_avg, exp_avg_sq, step };
inline constexpr std::array kStateKinds{StateKind::parameter, StateKind::exp_avg,
                                        StateKind::exp_avg_sq, StateKind::step};
const char* to_string(StateKind kind);

// Returns the tensor of this kind, which can be undefined.
const at::Tensor& tensor_of(const StateRange& range, StateKind kind);

}  // namespace fsdp
