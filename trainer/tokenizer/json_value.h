#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace fsdp {

// A value of a JSON file, with its key for messages: "model.merges.17". The functions throw
// std::runtime_error "KEY: what is wrong" if the value is of another kind.
class JsonValue {
 public:
  JsonValue(const nlohmann::json& json, std::string key) : json_(json), key_(std::move(key)) {}

  const nlohmann::json& json() const { return json_; }
  const std::string& key() const { return key_; }
  bool is_null() const { return json_.is_null(); }

  JsonValue member(const std::string& name) const;  // null if the object has no such member
  size_t size() const;                              // of an array
  JsonValue item(size_t index) const;               // of an array
  std::string text() const;
  bool flag(bool if_null) const;
  int32_t id() const;  // of a token: a whole number from 0 to 2^31 - 1

  [[noreturn]] void refuse(const std::string& what) const;  // throws "KEY: WHAT"
  // Refuses a value that is right, but is not read here. The message adds what to do.
  [[noreturn]] void refuse_kind(const std::string& what) const;

 private:
  const nlohmann::json& json_;  // of the caller
  std::string key_;
};

}  // namespace fsdp
