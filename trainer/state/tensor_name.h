#pragma once

#include <state/model_state.h>

#include <optional>
#include <string>
#include <utility>

namespace fsdp {

// How a checkpoint names its tensors: "NAME/exp_avg:0-16". Without a kind it is the parameter's
// values, and without a range it is whole.
struct TensorName {
  std::string parameter;
  StateKind kind{};
  std::optional<std::pair<int64_t, int64_t>> range;  // [elements] begin and end

  std::string text() const;
  static TensorName parse(const std::string& text);
};

}  // namespace fsdp
