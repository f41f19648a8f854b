#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace fsdp {

// A value of a JSON file, together with its key for messages, such as "model.merges.17". Each
// function throws std::runtime_error "KEY: what is wrong" if the value is of another kind than the
// function needs.
class JsonValue {
 public:
  JsonValue(const nlohmann::json& json, std::string key) : json_(json), key_(std::move(key)) {}

  const nlohmann::json& json() const { return json_; }
  const std::string& key() const { return key_; }
  bool is_null() const { return json_.is_null(); }

  // Returns the member `name` of the object; a null value if there is no such member.
  JsonValue member(const std::string& name) const;
  size_t size() const;  // returns the number of items; throws unless the value is an array
  JsonValue item(size_t index) const;  // returns item number `index` of the array, from 0
  std::string text() const;
  bool flag(bool if_null) const;
  int32_t id() const;  // returns a token id: a whole number from 0 to 2^31 - 1

  // Throws std::runtime_error with the text "KEY: `what`". KEY is the result of key().
  [[noreturn]] void refuse(const std::string& what) const;
  // Call it for a value that is valid in a tokenizer.json but that this program does not read.
  // Throws std::runtime_error "KEY: `what`"; the text adds what the user can do instead.
  [[noreturn]] void refuse_kind(const std::string& what) const;

 private:
  const nlohmann::json& json_;  // the value, owned by the caller of the constructor
  std::string key_;
};

}  // namespace fsdp
