#pragma once

#include <optim/state_range.h>

#include <array>
#include <vector>

namespace fsdp {

// The parameters of a model, and its buffers after them, and what this rank holds of their state.
struct ModelState {
  struct Parameter {
    std::string name;
    std::vector<int64_t> sizes;
    at::ScalarType dtype{at::kFloat};  // another one: a buffer

    int64_t numel() const;
    bool operator==(const Parameter&) const = default;
  };
  std::vector<Parameter> parameters;  // distinct, in the order of first registration
  std::vector<StateRange> ranges;     // of two ranks: the same elements, or none in common
};

// What a StateRange holds of its elements.
enum class StateKind { parameter, exp_avg, exp_avg_sq, step };
inline constexpr std::array kStateKinds{StateKind::parameter, StateKind::exp_avg,
                                        StateKind::exp_avg_sq, StateKind::step};
const char* to_string(StateKind kind);

// The tensor of this kind, which may be undefined.
const at::Tensor& tensor_of(const StateRange& range, StateKind kind);

}  // namespace fsdp
