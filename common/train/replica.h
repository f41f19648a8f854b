#pragma once

#include <comm/communicator.h>
#include <config/train_config.h>
#include <layout/shard_layout.h>
#include <nn/module.h>
#include <train/strategy.h>

#include <memory>
#include <vector>

namespace fsdp {

// A whole copy of the parameters with its gradients and optimizer, as single and ddp have. Every
// parameter, and its place in a bucket of gradients, is padded to 16 elements, so that the
// optimizer's kernels do the same arithmetic on it as on any shard.
class Replica {
 public:
  struct Slot {
    NamedParameter parameter;
    at::Tensor padded;  // [numel rounded up to 16], owned; parameter.tensor is a view of it
    size_t bucket{};    // trainable parameters alone
    int64_t offset{};   // [elements] in the bucket, a multiple of 16
    bool trainable{};
  };

  // Moves the parameters of `model` into padded storage on config's device, one at a time. Buckets
  // take trainable parameters from the last to the first, up to `bucket_bytes[i]` in the i-th (the
  // last entry serves for all that follow), one parameter at least. Throws as ShardLayout::check
  // does.
  Replica(Module& model, const TrainConfig& config, ShardLayout layout,
          const std::vector<int64_t>& bucket_bytes);

  const std::vector<Slot>& slots() const { return slots_; }
  const std::vector<int64_t>& bucket_numels() const { return bucket_numels_; }

  // The buckets of gradients, [bucket_numels()[i]] each: undefined values when just allocated,
  // which happens through `comm` where there is one (so that others can read them), and padding is
  // zero.
  void allocate_gradients(const Communicator* comm);
  const std::vector<at::Tensor>& buckets() const { return buckets_; }

  at::Tensor gradient(const Slot& slot) const;  // a view, shaped as the parameter

  double clip_grad_norm(double max_norm);  // as Strategy's
  void step();                             // as Strategy's; drops the gradients
  void full_parameters(const ParameterVisitor& visit) const;
  const ShardLayout& layout() const { return layout_; }

 private:
  at::Tensor shard_of_gradients(size_t unit, int rank) const;

  ShardLayout layout_;
  std::vector<ParameterGroup> groups_;
  c10::DeviceType device_;
  std::vector<Slot> slots_;                            // in the order of layout_.parameters
  std::vector<int64_t> bucket_numels_;                 // [elements], multiples of 16
  std::vector<at::Tensor> buckets_;                    // owned; empty between steps
  std::vector<std::vector<Piece>> pieces_;             // per group: the optimizer's state
  std::vector<std::vector<const Slot*>> piece_slots_;  // per group, whose piece it is
};

// What single and ddp have in common: everything but how gradients come about.
class ReplicaStrategy : public Strategy {
 public:
  double clip_grad_norm(double max_norm) override;
  void step() override;
  const ShardLayout& layout() const override { return replica_.layout(); }

 protected:
  ReplicaStrategy(const TrainConfig& config, ShardLayout layout,
                  const std::vector<int64_t>& bucket_bytes);

  std::shared_ptr<Module> model_;
  Replica replica_;  // of model_
};

}  // namespace fsdp
