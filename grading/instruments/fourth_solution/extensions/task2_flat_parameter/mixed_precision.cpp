#include <flat_parameter.h>
#include <memory/live_bytes.h>
#include <memory/storage.h>

#include <stdexcept>

namespace fsdp {

void FlatParameter::set_mixed_precision(const MixedPrecisionPolicy& policy) {
  check_mixed_precision(policy);
  if (state_ != UnitState::sharded || has_gradient()) {
    throw std::logic_error("unit '" + unit_ +
                           "': its precision is set while it is sharded and has no gradient");
  }
  precision_ = policy;
  const c10::Storage storage = flat_.storage();
  const auto view = [&](int64_t offset, at::IntArrayRef sizes) {
    return view_of_storage(storage, offset, sizes, policy.param_dtype);
  };
  flat_ = view(0, {layout_.padded_numel});
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& tensor = parameters_[i].tensor;
    tensor.set_data(view(layout_.offsets[i], tensor.sizes()));
  }
  rounded_shard_.reset();
  if (!policy.rounds_parameters()) return;
  const MemoryScope scope(MemoryClass::shards);
  rounded_shard_ = comm_->empty(shard_numel(), policy.param_dtype);
}

}  // namespace fsdp
