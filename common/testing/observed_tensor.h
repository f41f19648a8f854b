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

// A tensor as the test's own process reads it: as bytes, because that process runs no PyTorch
// operator.
struct ObservedTensor {
  at::ScalarType dtype{};
  std::vector<int64_t> sizes;
  std::vector<uint8_t> bytes;  // bytes of the elements in row-major order
  // To which parameters the elements belong; no value if the rank called observe() without Places.
  std::optional<Places> places;

  int64_t numel() const;
  double value(int64_t index) const;  // the value of element `index` in row-major order
  std::string text(int64_t index) const;
};

// to_observation() converts a tensor to a JSON value that can be sent, with_places() adds places to
// this value, and to_tensor() converts it back. is_tensor() returns whether to_observation() made a
// value. to_tensor() throws std::invalid_argument unless the value contains the data of all
// elements: graded code may have made it, and a tensor without data would equal every tensor.
nlohmann::json to_observation(const at::Tensor& tensor);
nlohmann::json with_places(nlohmann::json observation, const Places& places);
bool is_tensor(const nlohmann::json& observation);
ObservedTensor to_tensor(const nlohmann::json& observation);

// Returns an observation as one line of text; long observations are cut off.
std::string summary(const nlohmann::json& observation);

// Describes how two observations differ; returns "" if they are equal. Tensors are equal if dtype,
// sizes and every bit are equal. For tensors, the text has the first element that differs, the
// number of elements that differ, and the ratio of actual to expected values if it is the same for
// all elements.
std::string difference(const nlohmann::json& actual, const nlohmann::json& expected);

// The first element in which two tensors of one dtype and of equal sizes differ.
struct WrongElement {
  // The element's index in row-major order.
  int64_t index;
  // Where the element is: for example "[3, 2] (p0[3, 2], which rank 1 owns)".
  std::string place;
  // The element's actual and expected value as texts, such as "0.5". If both texts would be equal,
  // they also have the bits of the values.
  std::string is, expected;
  // Index of an element near this one that is equal in both tensors; -1: there is none.
  int64_t right{-1};
};
// Returns the first element in which two observed tensors differ. Returns nothing if the
// observations are not tensors of one dtype and equal sizes, or if they are equal.
std::optional<WrongElement> first_wrong_element(const nlohmann::json& actual,
                                                const nlohmann::json& expected);

}  // namespace fsdp
