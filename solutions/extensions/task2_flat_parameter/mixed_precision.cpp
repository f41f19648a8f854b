#include <flat_parameter_impl.h>
#include <memory/live_bytes.h>
#include <memory/storage.h>

#include <stdexcept>

namespace fsdp {

void FlatParameterImpl::set_mixed_precision(const MixedPrecisionPolicy& policy) {
  check_mixed_precision(policy);
  if (shard_.scalar_type() != at::kFloat) {
    throw std::invalid_argument("unit " + unit_ +
                                ": set_mixed_precision() needs fp32 parameters, " +
                                "and its parameters are " + dtype_name(shard_.scalar_type()));
  }
  if (state_ != UnitState::sharded || has_gradient()) {
    throw std::logic_error("unit " + unit_ +
                           ": set_mixed_precision() needs a sharded unit without gradients");
  }
  const c10::Storage storage = full_.storage();
  full_ = view_of_storage(storage, 0, full_.sizes(), policy.param_dtype);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& parameter = parameters_[i].tensor;
    // assign_data() would keep the dtype.
    parameter.set_data(
        view_of_storage(storage, layout_.offsets[i], parameter.sizes(), policy.param_dtype));
  }
  MemoryScope scope(MemoryClass::shards);
  rounded_shard_.reset();
  if (policy.rounds_parameters()) rounded_shard_ = comm_->empty(shard_numel(), policy.param_dtype);
  precision_ = policy;
}

// Converts one gradient after another, so at any time at most one gradient exists in both dtypes.
void FlatParameterImpl::widen_gradients() {
  const at::ScalarType dtype = precision_.accumulate_dtype();
  if (dtype == precision_.param_dtype) return;
  const MemoryScope scope(MemoryClass::gradients);
  for (const size_t index : collected_) {
    at::Tensor& gradient = parameters_[index].tensor.mutable_grad();
    gradient = gradient.to(dtype);  // the same tensor if it has this dtype
  }
}

}  // namespace fsdp
