#include <gtest/gtest.h>
#include <visit_tensors.h>

#include <array>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <common/in_a_process.h>

namespace elsewhere {

struct Pair {
  at::Tensor first, second;
};
inline auto tensors(Pair& pair) {
  return std::tie(pair.first, pair.second);
}

}  // namespace elsewhere

namespace fsdp {
namespace {

struct Cache {
  std::vector<at::Tensor> keys;
  at::Tensor values;
  int length{};
  auto tensors() { return std::tie(keys, values); }
};

struct Silent {
  at::Tensor tensor;
};

// Returns the numbers that the tensors in `value` hold, in the order in which visit_tensors()
// visits them.
template <class Value>
std::vector<int> numbers_in(Value value) {
  std::vector<int> numbers;
  visit_tensors(value, [&](const at::Tensor& tensor) { numbers.push_back(tensor.item<int>()); });
  return numbers;
}

at::Tensor number(int value) {
  return at::full({}, value);
}

using Numbers = std::vector<int>;

TEST(VisitTensors, visit_tensors_finds_tensors_in_containers_and_in_classes_that_list_them) {
  in_a_process([] {
    EXPECT_EQ(numbers_in(number(1)), Numbers{1});
    EXPECT_EQ(numbers_in(std::vector{number(1), number(2)}), (Numbers{1, 2}));
    EXPECT_EQ(numbers_in(std::array{number(1), number(2)}), (Numbers{1, 2}));
    EXPECT_EQ(numbers_in(std::list{number(1), number(2)}), (Numbers{1, 2}));
    EXPECT_EQ(numbers_in(std::pair{number(1), 7}), Numbers{1});
    EXPECT_EQ(numbers_in(std::tuple{number(1), std::string("a"), number(2)}), (Numbers{1, 2}));
    EXPECT_EQ(numbers_in(std::map<std::string, at::Tensor>{{"b", number(2)}, {"a", number(1)}}),
              (Numbers{1, 2}));
    EXPECT_EQ(numbers_in(std::unordered_map<int, at::Tensor>{{3, number(1)}}), Numbers{1});
    EXPECT_EQ(numbers_in(std::optional(number(1))), Numbers{1});
    EXPECT_EQ(numbers_in(Cache{{number(1), number(2)}, number(3)}), (Numbers{1, 2, 3}));
    EXPECT_EQ(numbers_in(elsewhere::Pair{number(1), number(2)}), (Numbers{1, 2}));
  });
}

TEST(VisitTensors, visit_tensors_finds_tensors_in_nested_containers) {
  in_a_process([] {
    using Nested =
        std::vector<std::pair<std::string, std::optional<std::map<int, std::array<Cache, 1>>>>>;
    const Nested nested{{"none", std::nullopt}, {"one", {{{5, {Cache{{number(1)}, number(2)}}}}}}};
    EXPECT_EQ(numbers_in(nested), (Numbers{1, 2}));
  });
}

TEST(VisitTensors, visit_tensors_finds_no_tensor_in_other_types) {
  in_a_process([] {
    EXPECT_EQ(numbers_in(7), Numbers{});
    EXPECT_EQ(numbers_in(std::string("text")), Numbers{});
    EXPECT_EQ(numbers_in(std::optional<at::Tensor>()), Numbers{});
    EXPECT_EQ(numbers_in(std::vector<at::Tensor>()), Numbers{});
    EXPECT_EQ(numbers_in(std::tuple<>()), Numbers{});
    EXPECT_EQ(numbers_in(Silent{number(1)}), Numbers{});
    EXPECT_EQ(numbers_in(std::make_shared<at::Tensor>(number(1))), Numbers{});
  });
}

template <class Value>
constexpr bool kHidden = TensorsInside<Value>::kHidden;

TEST(VisitTensors, at_compile_time_visit_tensors_detects_types_that_can_hide_a_tensor) {
  EXPECT_TRUE((kHidden<Silent>));
  EXPECT_TRUE((kHidden<std::tuple<at::Tensor, Silent>>));
  EXPECT_TRUE((kHidden<std::shared_ptr<at::Tensor>>));
  EXPECT_TRUE((kHidden<at::TensorList>)) << "its elements can't be replaced";
  EXPECT_TRUE((kHidden<std::map<int, const at::Tensor>>));
  EXPECT_FALSE((kHidden<std::tuple<at::Tensor, Cache, elsewhere::Pair>>));
  EXPECT_FALSE((kHidden<std::tuple<std::string, double, at::Device, std::vector<bool>>>));
  EXPECT_FALSE((kHidden<std::map<std::string, std::set<std::string>>>));
}

}  // namespace
}  // namespace fsdp
