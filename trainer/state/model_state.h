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
    at::ScalarType dtype{at::kFloat};  // parameters are fp32; a buffer can have another dtype

    int64_t numel() const;
    bool operator==(const Parameter&) const = default;
  };
  // The distinct parameters, in the order of their first registration; then the buffers.
  std::vector<Parameter> parameters;
  // A range of this rank and a range of another rank are either equal or have no element in common.
  std::vector<StateRange> ranges;
};

// The kinds of tensors that a StateRange can have for its elements.
enum class StateKind { parameter, exp_avg, exp_avg_sq, step };
inline constexpr std::array kStateKinds{StateKind::parameter, StateKind::exp_avg,
                                        StateKind::exp_avg_sq, StateKind::step};
const char* to_string(StateKind kind);

// Returns the tensor of this kind that `range` has, or an undefined tensor if `range` has none.
const at::Tensor& tensor_of(const StateRange& range, StateKind kind);

}  // namespace fsdp
