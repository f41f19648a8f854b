#include <base/text.h>
#include <tokenizer/json_value.h>

#include <limits>
#include <stdexcept>

namespace fsdp {

void JsonValue::refuse(const std::string& what) const {
  throw std::runtime_error(one_line(key_) + ": " + what);
}

void JsonValue::refuse_kind(const std::string& what) const {
  refuse(what +
         "; write the token ids with the package tokenizers, and pass them to train --tokens");
}

JsonValue JsonValue::member(const std::string& name) const {
  static const nlohmann::json kNull;
  if (!json_.is_object()) refuse("is not an object");
  const auto found = json_.find(name);
  return {found == json_.end() ? kNull : *found, key_.empty() ? name : key_ + '.' + name};
}

size_t JsonValue::size() const {
  if (!json_.is_array()) refuse("is not an array");
  return json_.size();
}

JsonValue JsonValue::item(size_t index) const {
  return {json_.at(index), key_ + '.' + std::to_string(index)};
}

std::string JsonValue::text() const {
  if (!json_.is_string()) refuse(is_null() ? "is missing" : "is not a text");
  return json_.get<std::string>();
}

bool JsonValue::flag(bool if_null) const {
  if (is_null()) return if_null;
  if (!json_.is_boolean()) refuse("is neither true nor false");
  return json_.get<bool>();
}

int32_t JsonValue::id() const {
  constexpr uint64_t kMost = std::numeric_limits<int32_t>::max();
  if (!json_.is_number_unsigned() || json_.get<uint64_t>() > kMost)
    refuse("is not a token id, a whole number from 0 to " + std::to_string(kMost));
  return json_.get<int32_t>();
}

}  // namespace fsdp
