#include <flat_parameter.h>
#include <memory/live_bytes.h>
#include <memory/storage.h>

#include <stdexcept>

namespace fsdp {

void FlatParameter::set_mixed_precision(const MixedPrecisionPolicy& policy) {
  check_mixed_precision(policy);
  if (state_ != UnitState::sharded || has_gradient())
    throw std::logic_error("unit " + unit_ + ": the precision of a unit in use cannot change");
  rounded_.reset();
  if (policy.rounds_parameters()) {
    const MemoryScope scope(MemoryClass::shards);
    rounded_ = comm_->empty(shard_numel(), policy.param_dtype);
  }
  precision_ = policy;
  view_flat_tensor();
}

void FlatParameter::view_flat_tensor() {
  const at::ScalarType dtype = precision_.param_dtype;
  flat_ = view_of_storage(storage_, 0, {layout_.padded_numel}, dtype);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i].tensor;
    parameter.set_data(view_of_storage(storage_, ranges_[i].begin, parameter.sizes(), dtype));
  }
}

}  // namespace fsdp
