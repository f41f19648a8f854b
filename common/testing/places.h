#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp {

// Whose elements an observed tensor holds, so that a wrong one can be told in the model's terms.
// The tensor is a part of a flat one, in which every parameter has a place; between them lies
// padding.
struct Places {
  struct Parameter {
    std::string name;
    std::vector<int64_t> sizes;
    int64_t offset;  // [elements] of its first element in the flat tensor
  };
  std::vector<Parameter> parameters;  // in the order of their offsets
  int64_t shard_numel{};              // [elements] what one rank owns of the flat tensor
  int64_t begin{};                    // [elements] of the observed tensor's first element in it

  bool in_parameter(int64_t index) const;  // whether element `index` is one's, and not padding
  // "p0[3, 2], which rank 1 owns" or "padding after p1, which rank 1 owns".
  std::string text(int64_t index) const;
};

// Of a unit's shard on this rank: a FlatParameter, or what has the same members.
template <typename Unit>
Places places_of_shard(const Unit& unit) {
  Places places;
  for (size_t i = 0; i < unit.parameters().size(); ++i) {
    const auto& [name, tensor] = unit.parameters()[i];
    places.parameters.push_back({name, tensor.sizes().vec(), unit.layout().offsets[i]});
  }
  places.shard_numel = unit.shard_numel();
  places.begin = unit.shard_offset();
  return places;
}

void to_json(nlohmann::json& json, const Places& places);
void from_json(const nlohmann::json& json, Places& places);

}  // namespace fsdp
