#include <flat_parameter.h>
#include <memory/live_bytes.h>

#include <stdexcept>

namespace fsdp {

// A new flat tensor, in which the parameters get new places.
void FlatParameter::set_mixed_precision(const MixedPrecisionPolicy& policy) {
  check_mixed_precision(policy);
  if (state_ != UnitState::sharded) throw std::logic_error(unit_ + " is not sharded");
  if (has_gradient()) throw std::logic_error(unit_ + " has a gradient");
  precision_ = policy;
  const std::vector<at::Tensor> views = views_without_memory(policy.param_dtype);
  for (size_t i = 0; i < parameters_.size(); ++i)
    parameters_[i].tensor.set_data(views[i]);
  const MemoryScope scope(MemoryClass::shards);
  lent_shard_ =
      policy.rounds_parameters() ? comm_->empty(shard_numel(), policy.param_dtype) : shard_;
}

}  // namespace fsdp
