#pragma once

#include <base/todo.h>
#include <comm/communicator.h>
#include <flat_layout.h>
#include <optim/mixed_precision.h>
#include <optim/shard_layout.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// A unit is gathering while an all-gather fills its flat tensor.
enum class UnitState { sharded, gathering, unsharded };

// The parameters of one unit as one flat tensor, of which this rank owns the rank-th of W equal
// shards. The parameters are contiguous views of the flat tensor in every state, so what autograd
// saved in forward holds the values again in backward, once the unit is unsharded. Each collective
// brings a rank (W-1)/W of padded_numel x 4 bytes. The other ranks read the shard, the flat
// gradient and, with replicas, the sum in place: all come from Communicator::empty(). All memory is
// freed with the unit. A unit that is destroyed first waits for an all-gather and for a reduction
// under way, and drops errors; but not if an exception destroys it, because then the other ranks
// may never come.
class FlatParameter {
 public:
  // Returns a parameter's values: itself, or what deferred initialization makes of it.
  using Materialize = std::function<at::Tensor(const at::Tensor& parameter)>;

  virtual ~FlatParameter() = default;
  FlatParameter(const FlatParameter&) = delete;  // a copy would own and free the same storage

  const std::string& unit() const { return unit_; }
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  const FlatLayout& layout() const { return layout_; }
  int64_t shard_numel() const { return shard_.numel(); }
  int64_t shard_offset() const { return shard_numel() * comm_->rank(); }
  virtual bool trainable() const = 0;  // one of the parameters requires a gradient
  UnitState state() const { return state_; }

  // If the unit is sharded: allocates the flat tensor's storage and issues its all-gather.
  virtual void unshard_async() = 0;
  virtual void unshard() = 0;  // the same, and waits for the all-gather: the parameters can be used
  virtual void reshard() = 0;  // waits for an all-gather under way, then frees the storage

  // Marks parameter `index`'s .grad as complete and counts its bytes as `gradients`. It stays in
  // .grad until reduce_gradient(): as it is, or moved into a flat gradient that is made at the
  // first call, of which .grad is then a view. It has the parameter's dtype or, after
  // widen_gradients(), a wider one. No copy stays beside it. What is added to .grad in place before
  // reduce_gradient() is reduced too, once, whether or not it is collected again.
  virtual void mark_gradient_ready(size_t index) = 0;
  virtual bool has_gradient() const = 0;  // one was collected and is not reduced
  // Moves the collected gradients from .grad into a flat gradient, and issues its reduce-scatter,
  // even if nothing was collected. Padding and parameters without a gradient count as zero. At its
  // peak it needs one flat gradient and the sum, or a copy of one gradient. If a .grad requires a
  // gradient (after a backward with create_graph), its values are moved and its graph is dropped.
  // Requires that no reduction of this unit is under way.
  virtual void reduce_gradient() = 0;
  // Waits for a reduction under way, divides the sum in place by gradient_divide_factor(), adds the
  // quotient to sharded_gradient(), and frees the flat gradient and the sum. The sharded gradient
  // requires no gradient.
  virtual void wait_for_reduction() = 0;
  // Waits for a reduction under way, drops its result and every .grad.
  virtual void discard_unreduced_gradients() = 0;

  const at::Tensor& shard() const { return shard_; }  // values between steps; no gradient
  const at::Tensor& sharded_gradient() const { return sharded_gradient_; }  // or undefined
  void clear_sharded_gradient() { sharded_gradient_.reset(); }
  // What wait_for_reduction() divides by: the number of ranks in the sum unless it is set. With 1
  // it leaves the sum.
  int64_t gradient_divide_factor() const {
    return divide_factor_.value_or(comm_->data_parallel_size());
  }
  void set_gradient_divide_factor(int64_t factor) { divide_factor_ = factor; }

  // Extension (see "Going further" in the handout), FSDP2's mixed precision. From now on the
  // parameters and their all-gather are of policy.param_dtype, the flat gradient and its
  // reduce-scatter of policy.reduce_dtype. The shard, the sum over ranks, and sharded_gradient()
  // stay fp32. If param_dtype is narrower, each unshard_async() rounds the shard into a copy that
  // the unit owns and counts as `shards`; the other ranks read it in place. Call it before the
  // first forward. Calls no collective. Throws what check_mixed_precision() throws, and
  // std::logic_error if the unit is not sharded or has_gradient(); then nothing has changed.
  virtual void set_mixed_precision(const MixedPrecisionPolicy& /*policy*/) {
    todo("FlatParameter::set_mixed_precision", "2.6");
  }
  // Part of the same extension. Converts each collected gradient in .grad to
  // policy.accumulate_dtype(), so that autograd adds the gradients of later backward passes in it.
  // Does nothing if param_dtype is that dtype, and to gradients that have it already.
  // Whoever runs a pass that reduces nothing calls it when the unit's gradients are complete.
  virtual void widen_gradients() {}

 protected:
  FlatParameter() = default;

  // What the functions above return. make_flat_parameter() and the implementation fill it.
  std::string unit_;
  std::vector<NamedParameter> parameters_;
  std::shared_ptr<Communicator> comm_;
  FlatLayout layout_;
  UnitState state_{};
  std::optional<int64_t> divide_factor_;
  MixedPrecisionPolicy precision_;
  at::Tensor shard_;             // [padded_numel / W], owned, readable by the other ranks
  at::Tensor sharded_gradient_;  // [padded_numel / W], owned; undefined until a reduction
};

// Makes a unit that keeps this rank's shard of the values of the distinct `parameters`, each in
// row-major order, and frees the rest. The shard's padding holds poison::padding(). Materializes
// one parameter at a time, and only those of which this rank owns an element. At its peak it needs,
// beside the values, the shard and a copy of one parameter. Calls no collective.
// Throws what check_fp32() throws.
std::shared_ptr<FlatParameter> make_flat_parameter(
    std::string unit, std::vector<NamedParameter> parameters, std::shared_ptr<Communicator> comm,
    const FlatParameter::Materialize& materialize = nullptr);

}  // namespace fsdp
