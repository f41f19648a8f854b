#pragma once

#include <c10/core/ScalarType.h>

#include <testing/places.h>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace at {
class Tensor;
}

namespace fsdp {

// A tensor as the test's process sees it: bytes, since that process runs no torch operator.
struct ObservedTensor {
  at::ScalarType dtype{};
  std::vector<int64_t> sizes;
  std::vector<uint8_t> bytes;    // row-major
  std::optional<Places> places;  // of its elements, if they were observed

  int64_t numel() const;
  double value(int64_t index) const;  // element `index` in row-major order
  std::string text(int64_t index) const;
};

// As a value that can be sent, and back. is_tensor: whether a value was made so.
nlohmann::json to_observation(const at::Tensor& tensor);
nlohmann::json with_places(nlohmann::json observation, const Places& places);
bool is_tensor(const nlohmann::json& observation);
ObservedTensor to_tensor(const nlohmann::json& observation);

// An observation in at most a line.
std::string summary(const nlohmann::json& observation);

// How two observations differ: for tensors the first element that does, how many do, and the ratio
// if all have the same. Empty if they are equal, which for tensors means dtype, sizes and every
// bit.
std::string difference(const nlohmann::json& actual, const nlohmann::json& expected);

}  // namespace fsdp
