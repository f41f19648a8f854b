#pragma once

#include <comm/communicator.h>
#include <config/train_config.h>
#include <nn/module.h>
#include <optim/gradient_buckets.h>
#include <optim/shard_layout.h>
#include <optim/state_range.h>
#include <optim/update_rule.h>

#include <memory>
#include <utility>
#include <vector>

namespace fsdp {

// The whole parameters of a model on one rank, with their gradients and optimizer. Every parameter,
// and its place in a bucket of gradients, is padded to a multiple of kAlignment elements, so that
// the optimizer's kernels do the same arithmetic on it as on a shard.
class Replica {
 public:
  struct Slot {
    NamedParameter parameter;
    at::Tensor padded;   // [numel, padded], fp32, owned: what the optimizer updates
    at::Tensor rounded;  // of param_dtype, owned; parameter.tensor is a view of it. Fp32: `padded`
    MixedPrecisionPolicy precision{};
    bool trainable{};  // only then has it a place in a bucket
    GradientBuckets::Place place{};

    // `gradient` as fsdp sends it: rounded to reduce_dtype.
    at::Tensor as_sent(const at::Tensor& gradient) const {
      return gradient.to(precision.reduce_dtype);
    }
  };

  // Moves the parameters of `model` into padded storage on config's device, one at a time. From
  // then on they are of the param_dtype of config.precision_of() each.
  Replica(Module& model, const TrainConfig& config, BucketSizes bucket_sizes);

  const std::vector<Slot>& slots() const { return slots_; }

  // Allocates the buckets, through `comm` unless it is null, so that other ranks can read them.
  // Padding is zero, all other values are undefined.
  void allocate_gradients(const Communicator* comm);
  const std::vector<at::Tensor>& buckets() const { return buckets_; }  // [bucket_numels()[i]]
  std::vector<at::Tensor> take_buckets() { return std::exchange(buckets_, {}); }
  const std::vector<int64_t>& bucket_numels() const { return bucket_numels_; }
  at::Tensor gradient(const Slot& slot) const;  // a view of a bucket, shaped as the parameter

  void round_parameters();  // the model computes with what the optimizer has left, from now on

  double clip_grad_norm(double max_norm, double norm_type);  // Strategy says what these five do
  void step();
  void skip_step();
  void full_parameters(const ParameterVisitor& visit) const;
  std::vector<StateRange> state();  // one range for each parameter that is not empty

 private:
  std::vector<ParameterGroup> groups_;
  c10::DeviceType device_;
  std::vector<Slot> slots_;                            // in the order of registration
  std::vector<int64_t> bucket_numels_;                 // [elements], multiples of kAlignment
  std::vector<at::Tensor> buckets_;                    // owned; empty between steps
  std::vector<std::vector<Piece>> pieces_;             // per group: the optimizer's state
  std::vector<std::vector<const Slot*>> piece_slots_;  // per group: the slot of each piece
};

}  // namespace fsdp
