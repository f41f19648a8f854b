#include <testing/places.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace fsdp {
namespace {

int64_t numel(const Places::Parameter& parameter) {
  return std::accumulate(parameter.sizes.begin(), parameter.sizes.end(), int64_t{1},
                         std::multiplies<>());
}

// Returns the position of element `index` (in row-major order) as its index in each dimension: "[3,
// 2]".
std::string position(const std::vector<int64_t>& sizes, int64_t index) {
  std::string text;
  for (size_t d = sizes.size(); d-- > 0; index /= sizes[d])
    text = std::to_string(index % sizes[d]) + (text.empty() ? "" : ", ") + text;
  return '[' + text + ']';
}

}  // namespace

bool Places::in_parameter(int64_t index) const {
  const int64_t at = begin + index;
  return std::any_of(parameters.begin(), parameters.end(), [&](const Parameter& parameter) {
    return parameter.offset <= at && at < parameter.offset + numel(parameter);
  });
}

std::string Places::text(int64_t index) const {
  const int64_t at = begin + index;
  std::string place = "padding";
  for (const Parameter& parameter : parameters) {
    if (parameter.offset > at || numel(parameter) == 0) continue;
    place = in_parameter(index) ? parameter.name + position(parameter.sizes, at - parameter.offset)
                                : "padding after " + parameter.name;
  }
  if (shard_numel > 0) place += ", which rank " + std::to_string(at / shard_numel) + " owns";
  return place;
}

void to_json(nlohmann::json& json, const Places& places) {
  json = {{"begin", places.begin}, {"shard_numel", places.shard_numel}};
  for (const auto& [name, sizes, offset] : places.parameters) {
    json["parameters"].push_back({{"name", name}, {"sizes", sizes}, {"offset", offset}});
  }
}

void from_json(const nlohmann::json& json, Places& places) {
  json.at("begin").get_to(places.begin);
  json.at("shard_numel").get_to(places.shard_numel);
  for (const auto& parameter : json.value("parameters", nlohmann::json::array())) {
    places.parameters.push_back(
        {parameter.at("name"), parameter.at("sizes"), parameter.at("offset")});
  }
}

}  // namespace fsdp
