#pragma once

#include <flat_layout.h>
#include <flat_parameter.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// Given, not a problem: units whose parameters are not fp32. The library (library/) makes such
// units; the tasks, their tests and the trainer do not.
namespace fsdp {

// Returns the dtype of the first parameter, or fp32 if there is no parameter.
inline at::ScalarType dtype_of(const std::vector<NamedParameter>& parameters) {
  return parameters.empty() ? at::kFloat : parameters.front().tensor.scalar_type();
}

// Returns the flat_layout() of parameters of one dtype. In 16 bits, offsets are multiples of
// 2 kAlignment elements, which are 64 bytes, and padded_numel is a multiple of
// 2 kAlignment * world_size.
inline FlatLayout layout_of_unit(const std::vector<NamedParameter>& parameters, int world_size) {
  // In 16 bits, flat_layout() counts pairs of elements, which have 4 bytes, as one fp32 element
  // has.
  const int64_t elements = c10::elementSize(dtype_of(parameters)) == 2 ? 2 : 1;
  std::vector<int64_t> numels = numel_of_each(parameters);
  for (int64_t& numel : numels)
    numel = round_up(numel, elements) / elements;
  FlatLayout layout = flat_layout(numels, world_size);
  for (int64_t& offset : layout.offsets)
    offset *= elements;
  layout.padded_numel *= elements;
  return layout;
}

// Does what make_flat_parameter() does, but its parameters are all fp32, all bf16 or all fp16.
// - The shard, the all-gather, the flat gradient, the reduce-scatter and sharded_gradient() have
//   this dtype. There is no fp32 copy of the shard.
// - The sum over ranks and its division are fp32. Then wait_for_reduction() rounds the quotient to
//   the unit's dtype, once, and adds it to sharded_gradient() in this dtype.
// - set_mixed_precision() throws std::invalid_argument if the unit is not fp32.
// Throws std::invalid_argument, which names the unit and the parameter, if the parameters have
// different dtypes or another dtype.
std::shared_ptr<FlatParameter> make_flat_parameter_of_any_dtype(
    std::string unit, std::vector<NamedParameter> parameters, std::shared_ptr<Communicator> comm,
    const FlatParameter::Materialize& materialize = nullptr);

}  // namespace fsdp
