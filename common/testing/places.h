#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp {

// Maps the elements of an observed tensor to parameters, so that the message of a failure can name
// the parameter. The observed tensor is a part of a flat tensor, which consists of parameters and
// padding between them.
struct Places {
  struct Parameter {
    std::string name;
    std::vector<int64_t> sizes;
    int64_t offset;  // index of the parameter's first element in the flat tensor
  };
  // The parameters in the flat tensor, in the order of their offsets.
  std::vector<Parameter> parameters;
  int64_t shard_numel{};  // number of elements of the flat tensor that one rank owns
  int64_t begin{};        // index of the observed tensor's first element in the flat tensor

  // Returns whether element `index` of the observed tensor belongs to a parameter; false: padding.
  bool in_parameter(int64_t index) const;
  // Describes element `index` of the observed tensor, for example as "p0[3, 2], which rank 1 owns"
  // or as "padding after p1, which rank 1 owns".
  std::string text(int64_t index) const;
};

// Returns the Places of this rank's shard of `unit`. The type Unit must have the members
// parameters(), layout(), shard_numel() and shard_offset().
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
