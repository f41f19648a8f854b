#include <optim/mixed_precision.h>
#include <optim/shard_layout.h>

#include <algorithm>
#include <array>
#include <map>
#include <stdexcept>
#include <unordered_set>

namespace fsdp {
namespace {

// The dtypes that a parameter may have.
constexpr std::array kParameterDtypes{at::kFloat, at::kBFloat16, at::kHalf};

[[noreturn]] void fail(const std::string& kind, const std::string& name, const std::string& what) {
  throw std::logic_error("shard layout: " + kind + " '" + name + "' " + what);
}

void check_units(const ShardLayout& layout) {
  if (layout.world_size < 1) {
    throw std::logic_error("shard layout: world size " + std::to_string(layout.world_size) +
                           " is below 1");
  }
  const int64_t step = kAlignment * layout.world_size;
  for (size_t i = 0; i < layout.units.size(); ++i) {
    const auto& unit = layout.units[i];
    if (unit.padded_numel < 0 || unit.padded_numel % step != 0) {
      fail("unit", unit.name,
           "has a padded numel of " + std::to_string(unit.padded_numel) +
               ", not a multiple of 16 W = " + std::to_string(step));
    }
  }
}

void check_trainable(const ShardLayout& layout) {
  std::vector<bool> trainable(layout.units.size());
  for (const auto& parameter : layout.parameters) {
    if (parameter.trainable) trainable[parameter.unit] = true;
  }
  for (size_t i = 0; i < layout.units.size(); ++i) {
    if (trainable[i] != layout.units[i].trainable) {
      fail("unit", layout.units[i].name, "and its parameters differ in whether they are trainable");
    }
  }
}

}  // namespace

std::vector<NamedParameter> distinct_parameters(const torch::nn::Module& module) {
  std::vector<NamedParameter> distinct;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : module.named_parameters()) {
    if (seen.insert(item.value().unsafeGetTensorImpl()).second) {
      distinct.push_back({item.key(), item.value()});
    }
  }
  return distinct;
}

std::vector<int64_t> numel_of_each(const std::vector<NamedParameter>& parameters) {
  std::vector<int64_t> numels;
  for (const NamedParameter& parameter : parameters)
    numels.push_back(parameter.tensor.numel());
  return numels;
}

void check_fp32(const std::string& unit, const std::vector<NamedParameter>& parameters) {
  check_dtype(unit, parameters, at::kFloat);
}

void check_dtype(const std::string& unit, const std::vector<NamedParameter>& parameters,
                 at::ScalarType dtype) {
  for (const auto& [name, parameter] : parameters) {
    if (parameter.scalar_type() == dtype) continue;
    throw std::invalid_argument("unit " + unit + ": parameter " + name + " is " +
                                c10::toString(parameter.scalar_type()) + ", not " +
                                c10::toString(dtype));
  }
}

void check_floating(const std::string& where, const std::vector<NamedParameter>& parameters) {
  for (const auto& [name, parameter] : parameters) {
    if (std::ranges::count(kParameterDtypes, parameter.scalar_type()) != 0) continue;
    throw std::invalid_argument(where + ": parameter " + name + " is " +
                                c10::toString(parameter.scalar_type()) +
                                ", and parameters must be Float, BFloat16 or Half; convert it with "
                                "to(), or register a tensor that is not trained as a buffer");
  }
}

std::string dtype_of_unit(at::ScalarType dtype) {
  return std::string(":") + dtype_name(dtype);
}

std::string ShardLayout::Unit::module() const {
  std::string path = name;
  const auto cut = [&](const std::string& end) {
    if (path.ends_with(end)) path.resize(path.size() - end.size());
  };
  cut(kFrozenUnit);
  for (const at::ScalarType dtype : kParameterDtypes)
    cut(dtype_of_unit(dtype));
  return path;
}

int64_t ShardLayout::padded_numel() const {
  int64_t sum = 0;
  for (const auto& unit : units)
    sum += unit.padded_numel;
  return sum;
}

int64_t ShardLayout::numel() const {
  int64_t sum = 0;
  for (const auto& parameter : parameters)
    sum += parameter.numel;
  return sum;
}

void ShardLayout::check(const std::vector<NamedParameter>& expected) const {
  check_units(*this);
  // For each unit, the index of the element after the last parameter that was checked so far.
  std::vector<int64_t> ends(units.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const std::string& name = expected[i].name;
    if (i >= parameters.size()) fail("parameter", name, "is missing");
    const auto& [found, unit, offset, numel, trainable, sizes] = parameters[i];
    if (found != name) fail("parameter", found, "stands where '" + name + "' belongs");
    if (unit >= units.size())
      fail("parameter", name,
           "is in unit " + std::to_string(unit) + " of " + std::to_string(units.size()));
    if (numel != expected[i].tensor.numel()) {
      fail("parameter", name,
           "has " + std::to_string(numel) + " elements instead of " +
               std::to_string(expected[i].tensor.numel()));
    }
    const std::string place =
        "at offset " + std::to_string(offset) + " of unit '" + units[unit].name + "' ";
    if (offset % kAlignment != 0) fail("parameter", name, place + "is not aligned to 16 elements");
    if (offset < ends[unit]) fail("parameter", name, place + "overlaps the parameter before it");
    ends[unit] = offset + numel;
    if (ends[unit] > units[unit].padded_numel) {
      fail("parameter", name,
           place + "reaches beyond the unit's end, " + std::to_string(units[unit].padded_numel));
    }
  }
  if (parameters.size() > expected.size()) {
    fail("parameter", parameters[expected.size()].name, "is not the model's, or is listed twice");
  }
  check_trainable(*this);
}

void ShardLayout::add_sizes(const torch::nn::Module& module) {
  std::map<std::string, std::vector<int64_t>> sizes;
  for (const auto& [name, tensor] : distinct_parameters(module))
    sizes[name] = tensor.sizes().vec();
  for (Parameter& parameter : parameters)
    parameter.sizes = sizes[parameter.name];
}

}  // namespace fsdp
