#include <c10/util/irange.h>
#include <flat_parameter.h>
#include <memory/live_bytes.h>
#include <memory/storage.h>

#include <stdexcept>

namespace fsdp {

void FlatParameter::set_mixed_precision(const MixedPrecisionPolicy& policy) {
  check_mixed_precision(policy);
  if (state_ != UnitState::sharded || has_gradient()) {
    throw std::logic_error("unit " + unit_ +
                           ": set_mixed_precision() while the unit is not sharded, or has a "
                           "gradient that is not reduced");
  }
  at::Tensor rounded;
  if (policy.rounds_parameters()) {
    const MemoryScope counted(MemoryClass::shards);
    rounded = comm_->empty(shard_numel(), policy.param_dtype);
  }
  precision_ = policy;
  rounded_ = rounded;
  // Offsets count elements, so every view of the memory is another one now.
  flat_ = view_of_storage(memory_, 0, {layout_.padded_numel}, policy.param_dtype);
  for (const auto i : c10::irange(parameters_.size())) {
    at::Tensor parameter = parameters_[i].tensor;
    parameter.set_data(
        view_of_storage(memory_, layout_.offsets[i], parameter.sizes(), policy.param_dtype));
  }
}

}  // namespace fsdp
