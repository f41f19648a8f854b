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

// A tensor as the test's own process reads it: as bytes, because that process runs no torch
// operator.
struct ObservedTensor {
  at::ScalarType dtype{};
  std::vector<int64_t> sizes;
  std::vector<uint8_t> bytes;    // row-major
  std::optional<Places> places;  // which parameters its elements belong to, if that was observed

  int64_t numel() const;
  double value(int64_t index) const;  // element `index` in row-major order
  std::string text(int64_t index) const;
};

// to_observation() converts a tensor to a value that can be sent, and to_tensor() converts it back.
// is_tensor() returns whether to_observation() made a value. to_tensor() throws
// std::invalid_argument unless the value contains the data of all elements: graded code may have
// made it, and a tensor without data would equal every tensor.
nlohmann::json to_observation(const at::Tensor& tensor);
nlohmann::json with_places(nlohmann::json observation, const Places& places);
bool is_tensor(const nlohmann::json& observation);
ObservedTensor to_tensor(const nlohmann::json& observation);

// Returns an observation as one line.
std::string summary(const nlohmann::json& observation);

// Describes how two observations differ; empty if they are equal. Tensors are equal if dtype, sizes
// and every bit are equal. For tensors, the text has the first element that differs, the number of
// elements that differ, and their ratio if it is the same for all.
std::string difference(const nlohmann::json& actual, const nlohmann::json& expected);

// The first element in which two tensors of one dtype and of equal sizes differ.
struct WrongElement {
  int64_t index;             // in row-major order
  std::string place;         // "[3, 2] (p0[3, 2], which rank 1 owns)"
  std::string is, expected;  // "0.5"; if both have the same digits, followed by their bits
  int64_t right{-1};         // the index of an equal element nearby; -1: there is none
};
// Returns nothing if the observations are not tensors of one dtype and equal sizes, or if they are
// equal.
std::optional<WrongElement> first_wrong_element(const nlohmann::json& actual,
                                                const nlohmann::json& expected);

}  // namespace fsdp
