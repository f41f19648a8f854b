#include <base/torch.h>
#include <gtest/gtest.h>
#include <testing/observed_tensor.h>

#include "expect_text.h"

namespace fsdp {
namespace {

nlohmann::json observation(int dtype, const std::vector<int64_t>& sizes, size_t bytes) {
  return {{"<dtype>", dtype},
          {"<sizes>", sizes},
          {"<bytes>", nlohmann::json::binary(std::vector<uint8_t>(bytes))}};
}

constexpr int kFloat = static_cast<int>(at::kFloat);

void expect_no_tensor(const nlohmann::json& value) {
  EXPECT_CONTAINS(error_of<std::invalid_argument>([&] { to_tensor(value); }), "it is not a tensor");
}

TEST(ObservedTensor, to_tensor_accepts_an_observation_whose_data_has_the_bytes_of_all_elements) {
  EXPECT_EQ(to_tensor(observation(kFloat, {2, 3}, 24)).numel(), 6);
  EXPECT_EQ(to_tensor(observation(kFloat, {}, 4)).numel(), 1);
  EXPECT_EQ(to_tensor(observation(kFloat, {0, 3}, 0)).numel(), 0);
}

TEST(ObservedTensor,
     to_tensor_throws_for_an_observation_with_impossible_sizes_dtype_or_number_of_bytes) {
  for (const size_t bytes : {0, 20, 23, 25, 48})
    expect_no_tensor(observation(kFloat, {2, 3}, bytes));
  expect_no_tensor(observation(kFloat, {-2, -3}, 24));
  expect_no_tensor(observation(kFloat, {int64_t{1} << 62, 4}, 0));
  for (const int dtype : {-1, 1000})
    expect_no_tensor(observation(dtype, {0}, 0));
}

TEST(ObservedTensor, comparing_an_observed_tensor_without_data_throws) {
  const nlohmann::json three = observation(kFloat, {3}, 12);
  EXPECT_EQ(difference(three, three), "");
  EXPECT_THROW(difference(observation(kFloat, {3}, 0), three), std::invalid_argument);
}

}  // namespace
}  // namespace fsdp
