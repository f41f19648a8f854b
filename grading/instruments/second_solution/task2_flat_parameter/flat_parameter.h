#pragma once

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

enum class UnitState { sharded, gathering, unsharded };

// The contract is in tasks/. Here the flat gradient exists from the first gradient that is
// collected, and each .grad is a view of it from then until reduce_gradient().
class FlatParameter {
 public:
  using Materialize = std::function<at::Tensor(const at::Tensor& parameter)>;

  FlatParameter(std::string unit, std::vector<NamedParameter> parameters,
                std::shared_ptr<Communicator> comm, const Materialize& materialize = nullptr);
  FlatParameter(const FlatParameter&) = delete;

  const std::string& unit() const { return unit_; }
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  const FlatLayout& layout() const { return layout_; }
  int64_t shard_numel() const { return layout_.padded_numel / comm_->world_size(); }
  int64_t shard_offset() const { return shard_numel() * comm_->rank(); }
  bool trainable() const;

  void unshard_async();
  void unshard();
  void reshard();
  UnitState state() const { return state_; }

  void collect_gradient(size_t index);
  bool has_gradient() const { return gradient_.defined(); }
  void reduce_gradient();
  void wait_for_reduction();
  void abandon_gradient();

  const at::Tensor& shard() const { return shard_; }
  const at::Tensor& sharded_gradient() const { return sharded_gradient_; }
  void drop_gradient() { sharded_gradient_.reset(); }
  // What wait_for_reduction() divides by: the number of ranks in the sum unless it is set. With 1
  // it leaves the sum.
  int64_t gradient_divide_factor() const { return divide_factor_.value_or(comm_->summed_ranks()); }
  void set_gradient_divide_factor(int64_t factor) { divide_factor_ = factor; }

  // Here the parameters' gradients are collected in their own dtype, and the whole flat gradient is
  // rounded when it is reduced.
  void set_mixed_precision(const MixedPrecisionPolicy& policy);

 private:
  at::Tensor part(const at::Tensor& flat, size_t index) const;  // view of a parameter's elements
  std::vector<at::Tensor> views_without_memory(at::ScalarType dtype = at::kFloat);
  void keep_shard_of(size_t index, const Materialize& materialize);
  void set_memory(size_t bytes);
  void begin_gradient();
  void take_gradients();  // out of every .grad

  std::string unit_;
  std::vector<NamedParameter> parameters_;  // views of flat_
  std::shared_ptr<Communicator> comm_;
  FlatLayout layout_;
  UnitState state_{};
  std::optional<int64_t> divide_factor_;
  MixedPrecisionPolicy precision_;
  at::Tensor flat_;              // [padded_numel], owned; without memory while sharded
  at::Tensor shard_;             // [padded_numel / W], owned, readable by the other ranks
  at::Tensor lent_shard_;        // shard_, or a rounded copy of it that the other ranks read
  at::Tensor gradient_;          // [padded_numel], owned; being collected
  at::Tensor in_reduction_;      // [padded_numel], owned; was gradient_, or is rounded from it
  at::Tensor mean_;              // [padded_numel / W], owned; of the reduction under way
  at::Tensor sharded_gradient_;  // [padded_numel / W], owned
  Handle gather_;
  Handle reduction_;
};

}  // namespace fsdp
