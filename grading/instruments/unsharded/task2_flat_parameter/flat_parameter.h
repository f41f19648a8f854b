#pragma once

#include <comm/communicator.h>
#include <flat_layout.h>
#include <optim/mixed_precision.h>
#include <optim/shard_layout.h>

#include <functional>
#include <optional>

namespace fsdp {

// Sharded: the flat tensor has no storage. Gathering: it has; an all-gather fills it.
enum class UnitState { sharded, gathering, unsharded };

// A cheat: has all parameters on every rank, all the time, and says otherwise. It makes the calls
// that are expected of it and throws their results away. No task from 2 on may give a point for it.
class FlatParameter {
 public:
  // Returns a parameter's values: itself, or what deferred initialization makes of it.
  using Materialize = std::function<at::Tensor(const at::Tensor& parameter)>;

  // Takes over the distinct `parameters`: keeps this rank's shard of their values, frees the rest.
  // Materializes one at a time, of which this rank owns a part. Calls no collective. Throws
  // std::invalid_argument naming unit and parameter if one is not fp32.
  FlatParameter(std::string unit, std::vector<NamedParameter> parameters,
                std::shared_ptr<Communicator> comm, const Materialize& materialize = nullptr);
  FlatParameter(const FlatParameter&) = delete;  // a copy would own and free the same storage

  const std::string& unit() const { return unit_; }
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  const FlatLayout& layout() const { return layout_; }
  int64_t shard_numel() const { return shard_.numel(); }
  int64_t shard_offset() const { return 0; }
  bool trainable() const;  // one of the parameters requires a gradient
  UnitState state() const { return state_; }

  void unshard_async();  // if sharded: allocates the flat tensor's storage, issues its all-gather
  void unshard();        // the same, and waits for the all-gather: the parameters can be used
  void reshard();        // waits for an all-gather under way, then frees the storage

  // Marks parameter `index`'s .grad as complete and counts its bytes as `gradients`. It stays in
  // .grad until reduce_gradient(), as it is or as a view of a flat gradient made at the first call.
  void collect_gradient(size_t index);
  bool has_gradient() const;  // one was collected and is not reduced
  // Moves each collected gradient out of .grad into a flat gradient, one at a time, and issues its
  // reduce-scatter. Padding and what got no gradient count as zero, even if nothing was collected.
  void reduce_gradient();
  void wait_for_reduction();  // adds the mean over ranks to sharded_gradient(), frees the flat one
  // After a pass that broke off: waits for a reduction under way, drops its result and all .grad.
  void abandon_gradient();

  const at::Tensor& shard() const { return shard_; }  // the values between steps
  const at::Tensor& sharded_gradient() const { return sharded_gradient_; }  // or undefined
  void drop_gradient() { sharded_gradient_.reset(); }
  // What wait_for_reduction() divides by: the number of ranks in the sum unless it is set. With 1
  // it leaves the sum.
  int64_t gradient_divide_factor() const { return divide_factor_.value_or(comm_->summed_ranks()); }
  void set_gradient_divide_factor(int64_t factor) { divide_factor_ = factor; }
  void set_mixed_precision(const MixedPrecisionPolicy& policy);

 private:
  std::string unit_;
  std::vector<NamedParameter> parameters_;  // views of shard_
  std::shared_ptr<Communicator> comm_;
  FlatLayout layout_;
  UnitState state_{};
  std::optional<int64_t> divide_factor_;
  at::Tensor shard_;             // [padded_numel], owned: not a shard
  at::Tensor sharded_gradient_;  // [padded_numel], owned: not a shard
  at::Tensor gradient_;          // [padded_numel], owned
  std::vector<bool> collected_;  // per parameter
};

}  // namespace fsdp
