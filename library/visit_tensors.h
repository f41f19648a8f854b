#pragma once

#include <base/torch.h>

#include <concepts>
#include <ranges>
#include <tuple>
#include <type_traits>
#include <utility>

namespace fsdp {

// Facts about a type: whether visit_tensors() can find a tensor in one of its values, and whether
// such a value can hide a tensor.
template <bool Found, bool Hidden>
struct TensorsIn {
  static constexpr bool kFound = Found;
  static constexpr bool kHidden = Hidden;
};

template <bool... Found, bool... Hidden>
constexpr auto in_any_of(TensorsIn<Found, Hidden>...) {
  return TensorsIn<(Found || ... || false), (Hidden || ... || false)>{};
}

// A class lists its tensors in a member, auto tensors() { return std::tie(keys, values); }. For a
// class that you cannot change, write a function in its namespace: auto tensors(Theirs& value).
template <class Value>
concept HasTensorsMember = requires(Value& value) {
  value.tensors();
};
template <class Value>
concept HasTensorsFunction = requires(Value& value) {
  tensors(value);
};

template <class Value>
concept RangeOfOthers =
    std::ranges::range<Value> && !std::same_as<std::ranges::range_value_t<Value>, Value>;
template <class Value>
concept TupleLike = requires {
  std::tuple_size<Value>::value;
};
template <class Value>
concept OptionalLike = requires(Value& value) {
  { value.has_value() } -> std::same_as<bool>;
  *value;
};

// Calls visit(at::Tensor&) with every tensor in `value`, undefined ones too: with `value` itself,
// and with the tensors in a class that lists them, in std::vector, std::array, the values of
// std::map and other ranges, in std::optional, std::pair and std::tuple; also in several layers.
// Returns a TensorsIn. Tensors can hide in other classes, in smart pointers and behind const.
template <class Value, class Visit>
constexpr auto visit_tensors(Value& value, const Visit& visit) {
  const auto visit_each = [&](auto&... parts) {
    (visit_tensors(parts, visit), ...);
    return decltype(in_any_of(visit_tensors(parts, visit)...))();
  };
  if constexpr (std::is_const_v<Value>) {
    using Inside = decltype(visit_tensors(std::declval<std::remove_const_t<Value>&>(), visit));
    return TensorsIn < false, Inside::kFound || Inside::kHidden > {};
  } else if constexpr (std::same_as<Value, at::Tensor>) {
    visit(value);
    return TensorsIn<true, false>{};
  } else if constexpr (HasTensorsMember<Value>) {
    return std::apply(visit_each, value.tensors());
  } else if constexpr (HasTensorsFunction<Value>) {
    return std::apply(visit_each, tensors(value));
  } else if constexpr (RangeOfOthers<Value>) {
    using Reference = std::ranges::range_reference_t<Value>;
    using Element = std::conditional_t<std::is_lvalue_reference_v<Reference>,
                                       std::remove_reference_t<Reference>,
                                       const std::ranges::range_value_t<Value>>;
    using Inside = decltype(visit_tensors(std::declval<Element&>(), visit));
    if constexpr (Inside::kFound)
      for (Element& element : value)
        visit_tensors(element, visit);
    return Inside{};
  } else if constexpr (OptionalLike<Value>) {
    using Inside = decltype(visit_tensors(*value, visit));
    if (value.has_value()) visit_tensors(*value, visit);
    return Inside{};
  } else if constexpr (TupleLike<Value>) {
    return std::apply(visit_each, value);
  } else {
    return TensorsIn<false, !std::is_trivially_copyable_v<Value>>{};
  }
}

struct LookAtTensor {
  void operator()(at::Tensor& /*tensor*/) const {}
};
template <class Value>
using TensorsInside = decltype(visit_tensors(std::declval<Value&>(), LookAtTensor()));

}  // namespace fsdp
