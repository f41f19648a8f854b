#pragma once

#include <state/model_state.h>

#include <string>
#include <vector>

// A ModelState (parameters and moments) that belongs to no model. Tests divide it among any number
// of ranks, save it and load it.
namespace fsdp {

inline const std::vector<ModelState::Parameter> kSavedParameters{
    {"a.weight", {6, 7}}, {"a.bias", {5}}, {"b.frozen", {3}}, {"b.none", {0, 2}}};

// Returns the ModelState with the ranges that rank `rank` of `world_size` ranks owns. The elements
// of the values and the moments are all different, or all 0 if `zero` is true. The parameter
// b.frozen has no moments.
inline ModelState cut_state(int rank, int world_size, bool zero = false) {
  ModelState state{kSavedParameters, {}};
  float first = zero ? 0 : 1;
  for (const auto& [name, sizes, dtype] : kSavedParameters) {
    const int64_t numel = ModelState::Parameter{name, sizes}.numel();
    const int64_t begin = numel * rank / world_size, end = numel * (rank + 1) / world_size;
    const auto elements = [&] {
      const at::Tensor all = at::arange(first, first + static_cast<float>(numel), at::kFloat);
      first += zero ? 0 : 1000;
      const at::Tensor own = all.slice(0, begin, end).clone();
      return zero ? own.zero_() : own;
    };
    StateRange range{name, begin, end, elements(), {}, {}, {}};
    if (name != "b.frozen") {
      range.exp_avg = elements();
      range.exp_avg_sq = elements();
      range.step = at::full({}, zero ? 0 : 17, at::kFloat);
    }
    if (begin < end) state.ranges.push_back(range);
  }
  return state;
}

// Returns the ModelState with all elements of all parameters. Each rank holds it if the ranks hold
// copies and no shards.
inline ModelState whole_state(bool zero = false) {
  return cut_state(0, 1, zero);
}

inline bool equal(const ModelState& a, const ModelState& b) {
  bool equal = a.ranges.size() == b.ranges.size();
  for (size_t i = 0; equal && i < a.ranges.size(); ++i)
    for (const StateKind kind : kStateKinds) {
      const at::Tensor &x = tensor_of(a.ranges[i], kind), &y = tensor_of(b.ranges[i], kind);
      equal = equal && x.defined() == y.defined() && (!x.defined() || x.equal(y));
    }
  return equal;
}

}  // namespace fsdp
