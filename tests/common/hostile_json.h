#pragma once

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

// What somebody who wants to deceive or to stop a reader of records may write in their place. The
// same seed gives the same.
namespace fsdp {

using Dice = std::mt19937_64;

inline size_t below(Dice& dice, size_t end) {
  return dice() % end;
}

inline nlohmann::json hostile_value(Dice& dice) {
  using Json = nlohmann::json;
  const Json odd = Json::parse(R"([null, true, -1, 0, 1e308, -9223372036854775808, "", [], {},
      18446744073709551615, 1099511627776, "\u001b[2J\n[       OK ] ",
      [{"<dtype>": 6, "<sizes>": [-1, 1073741824], "<bytes>": null}],
      {"begin": 9223372036854775807, "shard_numel": -1, "parameters": [{"name": 3}]}])");
  const std::vector<Json> more{NAN,
                               "\xff\xfe",
                               std::string(100'000, 'x'),
                               Json::binary({0xff, 0}),
                               {{"<dtype>", 6}, {"<sizes>", {0}}, {"<bytes>", Json::binary({})}}};
  const size_t which = below(dice, odd.size() + more.size());
  return which < odd.size() ? odd[which] : more[which - odd.size()];
}

// Changes, removes or doubles one part of `value`, however deep.
inline void spoil(nlohmann::json& value, Dice& dice) {
  if (!value.is_structured() || value.empty() || below(dice, 6) == 0) {
    value = hostile_value(dice);
    return;
  }
  auto part = value.begin();
  std::advance(part, below(dice, value.size()));
  const size_t how = below(dice, 8);
  if (how == 0) {
    value.erase(part);
  } else if (how == 1 && value.is_array()) {
    value.push_back(nlohmann::json(*part));
  } else {
    spoil(*part, dice);
  }
}

// Changes bytes, cuts the end off, or adds some.
inline void spoil(std::string& bytes, Dice& dice) {
  for (size_t i = below(dice, 4); i > 0 && !bytes.empty(); --i)
    bytes[below(dice, bytes.size())] = static_cast<char>(dice());
  const size_t how = below(dice, 6);
  if (how == 0) bytes.resize(below(dice, bytes.size() + 1));
  if (how == 1) bytes += bytes.substr(below(dice, bytes.size() + 1));
}

// How many of them a test tries: FSDP_HOSTILE, or a few.
inline int hostile_tries() {
  const char* count = std::getenv("FSDP_HOSTILE");
  return count == nullptr ? 60 : std::stoi(count);
}

}  // namespace fsdp
