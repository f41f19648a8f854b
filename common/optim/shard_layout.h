#pragma once

#include <base/torch.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace fsdp {

// In a flat parameter, parameters start at multiples of 64 bytes, so that a kernel sees the same
// alignment as in a tensor that PyTorch allocates. The optimizer also updates multiples of 16
// elements (update_rule.h explains why). In a flat parameter whose own dtype has 16 bits, which
// only the library makes, parameters start at multiples of 32 elements, which are 64 bytes too.
inline constexpr int64_t kAlignment = 16;  // [elements]: 64 bytes of fp32

constexpr int64_t round_up(int64_t numel, int64_t multiple) {
  return (numel + multiple - 1) / multiple * multiple;
}

// A parameter under its first name. (A tied parameter has several names.)
struct NamedParameter {
  std::string name;
  at::Tensor tensor;
};

// A function that is called with a whole (unsharded) parameter and its name. The tensor is valid
// only during the call.
using ParameterVisitor = std::function<void(const std::string& name, const at::Tensor& parameter)>;

// Returns the distinct parameters of a module in the order of their first registration. (torch's
// own parameters() lists a tied tensor once per name.)
std::vector<NamedParameter> distinct_parameters(const torch::nn::Module& module);

// Returns the number of elements of each of `parameters`, in their order.
std::vector<int64_t> numel_of_each(const std::vector<NamedParameter>& parameters);

// Throws std::invalid_argument, which names the unit and the parameter, if a parameter is not fp32.
void check_fp32(const std::string& unit, const std::vector<NamedParameter>& parameters);

// Throws std::invalid_argument, which begins with `where` and names the parameter, if a parameter
// is not fp32, bf16 or fp16.
void check_floating(const std::string& where, const std::vector<NamedParameter>& parameters);
// Throws std::invalid_argument, which names the unit and the parameter, unless all parameters have
// the dtype `dtype`.
void check_dtype(const std::string& unit, const std::vector<NamedParameter>& parameters,
                 at::ScalarType dtype);

// The end of a unit's name. If a module has frozen and trainable parameters, its frozen parameters
// form a unit of their own, whose name ends so.
inline const std::string kFrozenUnit = ":frozen";

// Returns the end of the name of a unit that has only those of a module's parameters that have one
// dtype: ":fp32", ":bf16" or ":fp16". (If the module's frozen parameters form a unit of their own
// too, kFrozenUnit follows.)
std::string dtype_of_unit(at::ScalarType dtype);

// Describes, as plain data, where FSDP stores every element of the parameters. Predictions use it,
// and so does code that computes the same numbers without sharding (the global norm is a sum over
// these shards).
struct ShardLayout {
  struct Unit {
    std::string name;
    // Number of elements of the unit with padding; a multiple of 16 world_size.
    int64_t padded_numel;
    bool root;  // whether this is the root's unit, which stays unsharded from forward to backward
    bool trainable;  // whether the unit has a parameter that requires a gradient

    // Returns the path of the unit's module: the name of the unit without the endings kFrozenUnit
    // (":frozen") and dtype_of_unit() (":bf16").
    std::string module() const;
  };
  struct Parameter {
    std::string name;
    size_t unit;  // index of the parameter's unit in `units`
    // Index of the parameter's first element in the flat parameter of its unit; a multiple of 16.
    int64_t offset;
    int64_t numel;
    bool trainable;
    // Sizes of the parameter. Set only for predictions (add_sizes()); empty: not known.
    std::vector<int64_t> sizes{};
  };
  int world_size{1};
  // The units of the model, in the order in which the forward of their modules runs.
  std::vector<Unit> units;
  // The distinct parameters of all units, in the order of first registration.
  std::vector<Parameter> parameters;
  // Indices in `units` of the units that backward does not unshard.
  std::set<size_t> no_unshard_in_backward{};

  int64_t padded_numel() const;  // number of elements of all units, with padding
  int64_t numel() const;         // number of elements of all parameters, without padding

  // Throws std::logic_error, which names the parameter or unit, unless the layout covers every
  // element of `parameters` exactly once, in order, aligned and inside its unit, and each unit is
  // trainable exactly if one of its parameters is.
  void check(const std::vector<NamedParameter>& parameters) const;
  // Sets the sizes of each parameter to those of the parameter of this name in `module`.
  void add_sizes(const torch::nn::Module& module);
};

}  // namespace fsdp
