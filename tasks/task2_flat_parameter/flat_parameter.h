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
// shards.
// - The parameters are contiguous views of the flat tensor in every state. So the tensors that
//   autograd saved in forward have their values again in backward, as soon as the unit is
//   unsharded.
// - In each collective over W ranks, a rank receives (W-1)/W of padded_numel elements. An element
//   has 4 bytes, if set_mixed_precision() has not chosen a 16-bit dtype.
// - The other ranks read the shard and the flat gradient in place. If the model has replicas, they
//   also read the sum in place. So all three come from Communicator::empty().
// - The destructor waits for an all-gather and for a reduction under way, and drops their errors.
//   But if an exception destroys the unit, the destructor waits for neither, because the other
//   ranks may never issue these collectives.
// - All memory is freed with the unit.
class FlatParameter {
 public:
  // Returns the values of a parameter: the parameter itself, or the tensor that deferred
  // initialization (task 1) makes for it.
  using Materialize = std::function<at::Tensor(const at::Tensor& parameter)>;

  virtual ~FlatParameter() = default;
  FlatParameter(const FlatParameter&) = delete;  // a copy would own and free the same storage

  const std::string& unit() const { return unit_; }
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  const FlatLayout& layout() const { return layout_; }
  int64_t shard_numel() const { return shard_.numel(); }
  int64_t shard_offset() const { return shard_numel() * comm_->rank(); }
  virtual bool trainable() const = 0;  // whether one of the parameters requires a gradient
  UnitState state() const { return state_; }

  // If the unit is sharded, allocates the storage of the flat tensor and issues its all-gather.
  virtual void unshard_async() = 0;
  // Calls unshard_async() and waits for the all-gather. Then the parameters can be used.
  virtual void unshard() = 0;
  // Waits for an all-gather under way, then frees the storage of the flat tensor.
  virtual void reshard() = 0;

  // Collects the gradient of parameter `index`: marks its .grad as complete, and counts the bytes
  // of .grad as `gradients`. Until reduce_gradient():
  // - The gradient stays in .grad, and no copy of it stays beside .grad. (The first call may make a
  //   flat gradient. Then each call moves the gradient there, and .grad becomes a view of it.)
  // - The gradient has the parameter's dtype or, after widen_gradients(), a wider one.
  // - Values that are added to .grad in place are reduced too, once, whether or not the gradient is
  //   collected again.
  virtual void mark_gradient_ready(size_t index) = 0;
  virtual bool has_gradient() const = 0;  // whether a collected gradient is not reduced yet
  // Moves the collected gradients from .grad into a flat gradient, and issues its reduce-scatter.
  // Requires that no reduction of this unit is under way.
  // - Issues it even if no gradient was collected.
  // - Padding and parameters without a gradient count as zero.
  // - If a .grad requires a gradient (after a backward pass with create_graph), its values are
  //   moved and its graph is dropped.
  // - At its peak it needs one flat gradient, and besides it either the sum, or the collected
  //   gradients and a copy of one of them.
  virtual void reduce_gradient() = 0;
  // Waits for a reduction under way. Then:
  // - divides the sum in place by gradient_divide_factor() and adds the quotient to
  //   sharded_gradient(), which requires no gradient;
  // - frees the flat gradient and the sum.
  virtual void wait_for_reduction() = 0;
  // Waits for a reduction under way. Drops the result of this reduction and every .grad of the
  // unit.
  virtual void discard_unreduced_gradients() = 0;

  const at::Tensor& shard() const { return shard_; }  // values between steps; has no gradient
  // The reduced gradients of this rank's shard; undefined if there are none.
  const at::Tensor& sharded_gradient() const { return sharded_gradient_; }
  void clear_sharded_gradient() { sharded_gradient_.reset(); }
  // The number by which wait_for_reduction() divides the sum. If it was not set, it is the number
  // of ranks whose gradients are in the sum. With 1, the sum stays as it is.
  int64_t gradient_divide_factor() const {
    return divide_factor_.value_or(comm_->data_parallel_size());
  }
  void set_gradient_divide_factor(int64_t factor) { divide_factor_ = factor; }

  // Extension (see "Going further" in the handout): FSDP2's mixed precision. Call this function
  // before the first forward. It calls no collective. After this call:
  // - The parameters and their all-gather have policy.param_dtype. The flat gradient and its
  //   reduce-scatter have policy.reduce_dtype.
  // - The shard, the sum over ranks, and sharded_gradient() stay fp32.
  // - If param_dtype is narrower, each unshard_async() rounds the shard into a copy that the unit
  //   owns and counts as `shards`. The other ranks read the copy in place.
  // Throws, before anything changes, what check_mixed_precision() throws, and std::logic_error if
  // the unit is not sharded or if has_gradient() is true.
  virtual void set_mixed_precision(const MixedPrecisionPolicy& /*policy*/) {
    todo("FlatParameter::set_mixed_precision", "2.6");
  }
  // Part of the extension of set_mixed_precision(). Call this function in a backward pass that
  // reduces no unit, when the unit's gradients are complete.
  // - Converts each collected gradient in .grad to policy.accumulate_dtype(), so that autograd adds
  //   the gradients of later backward passes in that dtype.
  // - Does nothing if param_dtype is that dtype, and nothing to gradients that have it already.
  virtual void widen_gradients() {}

 protected:
  FlatParameter() = default;

  // The data of the functions above. make_flat_parameter() and the implementation fill it.
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
// row-major order, and frees all other values. Calls no collective.
// - The shard's padding holds poison::padding().
// - Materializes one parameter at a time, and only parameters of which this rank owns an element.
// - At its peak it needs, beside the values, the shard and a copy of one parameter.
// Throws what check_fp32() throws.
std::shared_ptr<FlatParameter> make_flat_parameter(
    std::string unit, std::vector<NamedParameter> parameters, std::shared_ptr<Communicator> comm,
    const FlatParameter::Materialize& materialize = nullptr);

}  // namespace fsdp
