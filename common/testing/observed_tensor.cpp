#include <base/torch.h>
#include <testing/listed.h>
#include <testing/observed_tensor.h>
#include <testing/ratio.h>
#include <testing/tensor_bits.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace fsdp {
namespace {

// Keys of the JSON object that represents a tensor. Other observations never use these keys.
constexpr const char* kDtype = "<dtype>";
constexpr const char* kSizes = "<sizes>";
constexpr const char* kBytes = "<bytes>";
constexpr const char* kPlaces = "<places>";

template <typename T>
T load(const ObservedTensor& tensor, int64_t index) {
  T value;
  std::memcpy(&value, tensor.bytes.data() + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

std::string bits(const ObservedTensor& tensor, int64_t index) {
  const auto width = static_cast<int64_t>(c10::elementSize(tensor.dtype));
  std::string text = "0x";
  for (int64_t i = width - 1; i >= 0; --i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", tensor.bytes[index * width + i]);
    text += digits;
  }
  return text;
}

bool same_bits(const ObservedTensor& a, const ObservedTensor& b, int64_t index) {
  const auto width = static_cast<int64_t>(c10::elementSize(a.dtype));
  return std::memcmp(&a.bytes[index * width], &b.bytes[index * width], width) == 0;
}

template <typename List>
std::string list(const List& items) {
  std::ostringstream out;
  const char* separator = "";
  out << '[';
  for (const auto& item : items) {
    out << separator << item;
    separator = ", ";
  }
  out << ']';
  return out.str();
}

std::string type_text(const ObservedTensor& tensor) {
  return c10::toString(tensor.dtype) + std::string(" ") + list(tensor.sizes);
}

// Returns the position of element `index` (in row-major order) as its index in each dimension: "[3,
// 2]".
std::string position(const ObservedTensor& tensor, int64_t index) {
  std::vector<int64_t> place(tensor.sizes.size());
  for (size_t d = place.size(); d-- > 0; index /= tensor.sizes[d])
    place[d] = index % tensor.sizes[d];
  return list(place);
}

// Returns the number of bytes of a tensor of this type and these sizes; nothing if no such tensor
// can exist.
std::optional<int64_t> size_of(int dtype, const std::vector<int64_t>& sizes) {
  const auto types = static_cast<int>(at::ScalarType::Undefined);
  if (dtype < 0 || dtype >= types) return {};
  auto bytes = static_cast<int64_t>(c10::elementSize(static_cast<at::ScalarType>(dtype)));
  for (const int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return {};
  }
  return bytes;
}

std::vector<double> values(const ObservedTensor& tensor) {
  std::vector<double> result;
  for (int64_t i = 0; i < tensor.numel(); ++i)
    result.push_back(tensor.value(i));
  return result;
}

bool has_values_in_another_order(const ObservedTensor& actual, const ObservedTensor& expected) {
  auto is = values(actual), should_be = values(expected);
  const auto is_nan = [](double value) { return std::isnan(value); };
  // std::sort() cannot sort a list with a NaN, so the answer is "no" if there is one.
  if (std::any_of(is.begin(), is.end(), is_nan)) return false;
  if (std::any_of(should_be.begin(), should_be.end(), is_nan)) return false;
  std::sort(is.begin(), is.end());
  std::sort(should_be.begin(), should_be.end());
  return is == should_be;
}

std::string remark_on_values(const ObservedTensor& actual, const ObservedTensor& expected,
                             int64_t first_difference) {
  if (std::isnan(actual.value(first_difference)) && !std::isnan(expected.value(first_difference)))
    return "memory that nobody has written yet, or that was freed, holds nan";
  const bool differ = actual.value(first_difference) != expected.value(first_difference);
  // If the first elements that differ are 0 and -0, `differ` is false: they compare as equal, so
  // has_values_in_another_order() would be true of lists with equal values in the same order.
  if (differ && has_values_in_another_order(actual, expected))
    return "the right values in another order";
  return ratio_in_words(values(actual), values(expected));
}

// Returns the first element in which the tensors differ, and the number of elements that differ.
// Both tensors must have the same dtype and sizes.
std::pair<WrongElement, int64_t> wrong_elements(const ObservedTensor& actual,
                                                const ObservedTensor& expected) {
  int64_t first = -1, right = -1;
  int64_t differing = 0;
  for (int64_t i = 0; i < actual.numel(); ++i) {
    if (!same_bits(actual, expected, i)) {
      if (differing++ == 0) first = i;
    } else if (first == -1 || right == -1) {
      right = i;
    }
  }
  if (differing == 0) return {};
  WrongElement element{first, position(actual, first), actual.text(first), expected.text(first),
                       right};
  if (element.is == element.expected) {
    element.is += " (" + bits(actual, first) + ")";
    element.expected += " (" + bits(expected, first) + ")";
  }
  if (actual.places) element.place += " (" + actual.places->text(first) + ")";
  return {element, differing};
}

std::string tensor_difference(const ObservedTensor& actual, const ObservedTensor& expected) {
  if (actual.dtype != expected.dtype || actual.sizes != expected.sizes) {
    return "is " + type_text(actual) + ", expected " + type_text(expected);
  }
  const auto& [first, differing] = wrong_elements(actual, expected);
  if (differing == 0) return "";
  const std::string remark = remark_on_values(actual, expected, first.index);
  return std::to_string(differing) + " of " + std::to_string(actual.numel()) +
         " elements differ, the first at " + first.place + ": is " + first.is + ", expected " +
         first.expected + (remark.empty() ? "" : "; " + remark);
}

// If `actual` and `expected` are long lists, returns a text with the first part in which they
// differ; else "". A message shows this text before the lists themselves, which it cuts off.
std::string list_remark(const nlohmann::json& actual, const nlohmann::json& expected) {
  constexpr size_t kSeenAtOnce = 4;
  const auto is = listed(actual), should_be = listed(expected);
  if (std::max(is.size(), should_be.size()) <= kSeenAtOnce) return "";
  const size_t first = first_difference(is, should_be);
  const auto part = [&](const std::vector<nlohmann::json>& list) {
    return first < list.size() ? summary(list[first]) : "nothing";
  };
  return "part " + std::to_string(first + 1) + " is " + part(is) + ", expected " + part(should_be) +
         "; the whole ";
}

// Describes the members of the JSON object `expected` whose values differ in the JSON object
// `actual`.
std::string object_difference(const nlohmann::json& actual, const nlohmann::json& expected) {
  std::string text;
  for (const auto& [key, should_be] : expected.items()) {
    const nlohmann::json is = actual.value(key, nlohmann::json());
    if (is == should_be) continue;
    text += (text.empty() ? "" : "; ") + key + ": is " + summary(is) + ", expected " +
            summary(should_be);
  }
  return text;
}

std::string number_remark(const nlohmann::json& actual, const nlohmann::json& expected) {
  if (!actual.is_number_float() || !expected.is_number_float()) return "";
  const std::string words = ratio_in_words({actual.get<double>()}, {expected.get<double>()});
  return words.empty() ? "" : "; " + words;
}

}  // namespace

int64_t ObservedTensor::numel() const {
  return static_cast<int64_t>(bytes.size() / c10::elementSize(dtype));
}

double ObservedTensor::value(int64_t index) const {
  switch (dtype) {
    case at::kFloat:
      return load<float>(*this, index);
    case at::kDouble:
      return load<double>(*this, index);
    case at::kHalf:
      return load<c10::Half>(*this, index);
    case at::kBFloat16:
      return load<c10::BFloat16>(*this, index);
    case at::kLong:
      return static_cast<double>(load<int64_t>(*this, index));
    case at::kInt:
      return load<int32_t>(*this, index);
    case at::kShort:
      return load<int16_t>(*this, index);
    case at::kChar:
      return load<int8_t>(*this, index);
    case at::kByte:
      return load<uint8_t>(*this, index);
    case at::kBool:
      return load<bool>(*this, index);
    default:
      return NAN;
  }
}

std::string ObservedTensor::text(int64_t index) const {
  if (dtype == at::kLong) return std::to_string(load<int64_t>(*this, index));
  // snprintf() would write "-nan" for a NaN with a sign bit.
  if (std::isnan(value(index))) return "nan";
  char digits[32];
  std::snprintf(digits, sizeof digits, dtype == at::kDouble ? "%.17g" : "%.9g", value(index));
  return digits;
}

nlohmann::json to_observation(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  return {{kDtype, static_cast<int>(tensor.scalar_type())},
          {kSizes, tensor.sizes().vec()},
          {kBytes, nlohmann::json::binary(bytes_of(tensor.is_cuda() ? tensor.cpu() : tensor))}};
}

nlohmann::json with_places(nlohmann::json observation, const Places& places) {
  if (observation.is_object()) observation[kPlaces] = places;
  return observation;
}

bool is_tensor(const nlohmann::json& observation) {
  return observation.is_object() && observation.contains(kDtype);
}

ObservedTensor to_tensor(const nlohmann::json& observation) {
  const int dtype = observation.at(kDtype).get<int>();
  const auto sizes = observation.at(kSizes).get<std::vector<int64_t>>();
  const auto& bytes = observation.at(kBytes).get_binary();
  if (size_of(dtype, sizes) != static_cast<int64_t>(bytes.size())) {
    throw std::invalid_argument("an observation of type " + std::to_string(dtype) + " and sizes " +
                                list(sizes) + " has " + std::to_string(bytes.size()) +
                                " bytes: it is not a tensor");
  }
  ObservedTensor tensor{static_cast<at::ScalarType>(dtype), sizes, bytes, {}};
  if (observation.contains(kPlaces)) tensor.places = observation.at(kPlaces).get<Places>();
  return tensor;
}

std::string summary(const nlohmann::json& observation) {
  constexpr int64_t kShown = 6;
  constexpr size_t kLine = 200;
  // kReplace: dump() replaces bytes that are not UTF-8 instead of throwing.
  constexpr auto kReplace = nlohmann::json::error_handler_t::replace;
  if (!is_tensor(observation)) {
    const bool finite = !observation.is_number_float() || std::isfinite(observation.get<double>());
    const std::string text = finite ? observation.dump(-1, ' ', false, kReplace)
                                    : std::to_string(observation.get<double>());
    return text.size() <= kLine ? text : text.substr(0, kLine) + "...";
  }
  const ObservedTensor tensor = to_tensor(observation);
  std::vector<std::string> values;
  for (int64_t i = 0; i < std::min(tensor.numel(), kShown); ++i)
    values.push_back(tensor.text(i));
  if (tensor.numel() > kShown) values.emplace_back("...");
  return type_text(tensor) + " " + list(values);
}

std::string difference(const nlohmann::json& actual, const nlohmann::json& expected) {
  if (is_tensor(actual) && is_tensor(expected)) {
    return tensor_difference(to_tensor(actual), to_tensor(expected));
  }
  if (actual == expected) return "";
  if (actual.is_object() && expected.is_object() && !is_tensor(actual) && !is_tensor(expected)) {
    const std::string members = object_difference(actual, expected);
    if (!members.empty()) return members;
  }
  return list_remark(actual, expected) + "is " + summary(actual) + ", expected " +
         summary(expected) + number_remark(actual, expected);
}

std::optional<WrongElement> first_wrong_element(const nlohmann::json& actual,
                                                const nlohmann::json& expected) {
  if (!is_tensor(actual) || !is_tensor(expected)) return {};
  const ObservedTensor is = to_tensor(actual), should_be = to_tensor(expected);
  if (is.dtype != should_be.dtype || is.sizes != should_be.sizes) return {};
  const auto& [first, differing] = wrong_elements(is, should_be);
  if (differing == 0) return {};
  return first;
}

}  // namespace fsdp
