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

// A tensor as the test's own process sees it: bytes, since that process runs no torch operator.
struct ObservedTensor {
  at::ScalarType dtype{};
  std::vector<int64_t> sizes;
  std::vector<uint8_t> bytes;    // row-major
  std::optional<Places> places;  // which parameters its elements belong to, if that was observed

  int64_t numel() const;
  double value(int64_t index) const;  // element `index` in row-major order
  std::string text(int64_t index) const;
};

// to_observation() makes of a tensor a value that can be sent; to_tensor() reads it back;
// is_tensor() returns whether a value was made by to_observation(). to_tensor() throws
// std::invalid_argument if the value does not hold the bytes of all elements: what a rank reports
// may have been made by graded code, and would be equal to every tensor without them.
nlohmann::json to_observation(const at::Tensor& tensor);
nlohmann::json with_places(nlohmann::json observation, const Places& places);
bool is_tensor(const nlohmann::json& observation);
ObservedTensor to_tensor(const nlohmann::json& observation);

// An observation on one line.
std::string summary(const nlohmann::json& observation);

// How two observations differ; empty if they are equal. Tensors are equal if dtype, sizes and every
// bit are. Of tensors that differ it says which element is the first that differs, how many do, and
// their ratio if it is the same for all.
std::string difference(const nlohmann::json& actual, const nlohmann::json& expected);

}  // namespace fsdp
