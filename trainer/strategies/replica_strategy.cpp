#include <config/batch_partition.h>
#include <memory/live_bytes.h>
#include <nn/gradient_hook.h>
#include <optim/clip_grad_norm.h>
#include <optim/gradient_buckets.h>
#include <optim/matrix_owners.h>
#include <optim/muon.h>
#include <optim/p_norm.h>
#include <strategies/microbatch_strategy.h>
#include <strategies/model_device.h>
#include <strategies/offloaded_moments.h>
#include <strategies/replica_strategy.h>
#include <strategies/scaled_backward.h>
#include <strategies/workload.h>

#include <map>
#include <utility>

namespace fsdp {
namespace {

// A parameter and the place of its gradient in a bucket. The parameter and the gradient are padded
// to a multiple of kAlignment elements, so that the optimizer's kernels do the same arithmetic on
// them as on a shard of fsdp.
struct Slot {
  NamedParameter parameter;
  // [numel with padding], in memory of this object: the values in fp32, which the optimizer
  // updates.
  at::Tensor padded;
  // [numel with padding], in memory of this object: the parameter rounded to param_dtype;
  // parameter.tensor is a view of it. If param_dtype is fp32, `rounded` and `padded` are the same
  // tensor.
  at::Tensor rounded;
  MixedPrecisionPolicy precision{};
  bool trainable{};   // false: the parameter is frozen, so it has no gradient in a bucket
  size_t gradient{};  // index of the parameter's gradient among those of trainable parameters
  GradientBuckets::Place place{};

  // Returns `gradient` rounded to reduce_dtype, as fsdp sends it.
  at::Tensor as_sent(const at::Tensor& gradient) const {
    return gradient.to(precision.reduce_dtype);
  }
};

// Returns a view of `storage`, which has padding, with the shape of `parameter`.
at::Tensor unpadded(const at::Tensor& storage, const at::Tensor& parameter) {
  return storage.narrow(0, 0, parameter.numel()).view(parameter.sizes());
}

// Returns a copy of `parameter` as a flat tensor on `device`, with zeros appended up to a multiple
// of kAlignment elements. Its bytes are counted in the class `cls`.
at::Tensor in_padded_storage(const at::Tensor& parameter, c10::DeviceType device, MemoryClass cls) {
  MemoryScope scope(cls);
  auto storage = at::zeros({round_up(parameter.numel(), kAlignment)},
                           parameter.options().device(device).requires_grad(false));
  unpadded(storage, parameter).copy_(parameter);
  return storage;
}

// The strategy of --mode single and --mode ddp. This process has all parameters of a model whole,
// with their gradients and their optimizer state. In the backward pass, each gradient moves into
// its bucket as soon as it is complete.
class ReplicaStrategy : public MicrobatchStrategy {
 public:
  // `comm`: null in --mode single, where this process computes the microbatches of all ranks.
  // `make_reduction`: makes the object that reduces buckets in the backward pass. If
  // `make_reduction` is null or returns null, ddp reduces all buckets after the backward pass.
  // `make_reduction` is not called with --reduce-gradients last.
  ReplicaStrategy(const TrainConfig& config, Workload workload, ShardLayout layout,
                  std::shared_ptr<Communicator> comm, MakeBucketReduction make_reduction)
      : MicrobatchStrategy(config, std::move(workload),
                           comm ? std::optional(comm->rank()) : std::nullopt),
        comm_(std::move(comm)),
        device_(config.ranks.comm.device) {
    layout_ = std::move(layout);
    model_ = workload_.build();
    groups_ = with_state_file(config, layout_, 0).optimizer.parameter_groups();
    pieces_.resize(groups_.size());
    piece_slots_.resize(groups_.size());
    move_parameters(config);
    place_gradients(comm_ ? kDdpBuckets : kBucketOfEach, make_reduction);
    layout_.check(distinct_parameters(*model_));
    move_buffers(*model_, device_);
    for (size_t i = 0; i < slots_.size(); ++i)
      if (slots_[i].trainable)
        register_post_accumulate_grad_hook(slots_[i].parameter.tensor, [this, i] { collect(i); });
  }

  double clip_grad_norm(double max_norm, double norm_type) override {
    live_bytes::enter(Phase::optimizer);
    // The padding in the buckets is zero, so it adds nothing to the norm.
    return fsdp::clip_grad_norm(buckets_, max_norm, norm_type);
  }

  void step() override {
    live_bytes::enter(Phase::optimizer);
    const at::NoGradGuard no_grad;
    for (size_t group = 0; group < groups_.size(); ++group) {
      for (size_t i = 0; i < pieces_[group].size(); ++i) {
        const Slot& slot = *piece_slots_[group][i];
        pieces_[group][i].gradient =
            buckets_[slot.place.bucket].narrow(0, slot.place.offset, slot.padded.numel());
      }
      if (is_muon(groups_[group])) {
        update_matrices(group);
      } else {
        update(groups_[group].options, pieces_[group]);
      }
      for (Piece& piece : pieces_[group])
        piece.gradient.reset();
    }
    buckets_.clear();
  }

  void skip_step() override {
    live_bytes::enter(Phase::optimizer);
    for (size_t group = 0; group < groups_.size(); ++group)
      allocate_state(groups_[group].options, pieces_[group]);
    buckets_.clear();
  }

  void full_parameters(const ParameterVisitor& visit) override {
    if (comm_ && comm_->rank() != 0) return;
    for (const Slot& slot : slots_)
      visit(slot.parameter.name, unpadded(slot.padded, slot.parameter.tensor).cpu());
  }

  std::vector<Owned> owned() const override {
    std::vector<Owned> all;
    for (const Slot& slot : slots_) {
      const bool has_gradient = slot.trainable && !buckets_.empty();
      all.push_back({slot.parameter.name, 0, own_part(slot, slot.padded),
                     has_gradient ? gradient(slot).flatten() : at::Tensor()});
    }
    return all;
  }

 private:
  std::vector<StateRange> ranges() override {
    const at::NoGradGuard no_grad;
    std::vector<StateRange> ranges;
    std::map<const Slot*, const Piece*> pieces;
    for (size_t group = 0; group < groups_.size(); ++group) {
      allocate_state(groups_[group].options, pieces_[group]);
      for (size_t i = 0; i < pieces_[group].size(); ++i)
        pieces[piece_slots_[group][i]] = &pieces_[group][i];
    }
    for (const Slot& slot : slots_) {
      const int64_t numel = slot.parameter.tensor.numel();
      if (numel == 0) continue;
      StateRange range{slot.parameter.name, 0, numel, own_part(slot, slot.padded), {}, {}, {}};
      const auto piece = pieces.find(&slot);
      if (piece != pieces.end() && piece->second->step.defined()) {
        range.exp_avg = own_part(slot, piece->second->exp_avg);
        if (piece->second->exp_avg_sq.defined())  // Muon has no exp_avg_sq, so it may be undefined
          range.exp_avg_sq = own_part(slot, piece->second->exp_avg_sq);
        range.step = piece->second->step;
      }
      ranges.push_back(std::move(range));
    }
    return ranges;
  }

  // Updates the parameters of a group that uses Muon. Every rank updates every matrix.
  void update_matrices(size_t group) {
    const OptimizerOptions& options = groups_[group].options;
    allocate_state(options, pieces_[group]);
    for (size_t i = 0; i < pieces_[group].size(); ++i) {
      const Piece& piece = pieces_[group][i];
      const at::Tensor& matrix = piece_slots_[group][i]->parameter.tensor;
      const at::Tensor update = at::empty_like(piece.parameter);
      average_gradient(options, piece, update);
      if (matrix.numel() > 0) orthogonalize(unpadded(update, matrix));
      apply_orthogonal_update(options, piece, update);
    }
  }

  // Returns the first [numel] elements of `padded`, which is the slot's parameter or a moment of
  // it, without the padding.
  static at::Tensor own_part(const Slot& slot, const at::Tensor& padded) {
    return padded.narrow(0, 0, slot.parameter.tensor.numel());
  }

  // Moves the model's parameters into padded storage, one parameter at a time. Afterwards each
  // parameter has its param_dtype.
  void move_parameters(const TrainConfig& config) {
    const at::NoGradGuard no_grad;
    for (auto& parameter : distinct_parameters(*model_)) {
      const MixedPrecisionPolicy precision = config.precision.policy_of(parameter.name);
      const bool rounds = precision.rounds_parameters();
      const at::Tensor padded = in_padded_storage(
          parameter.tensor, device_, rounds ? MemoryClass::shards : MemoryClass::gathered);
      at::Tensor rounded = padded;
      if (rounds) {
        MemoryScope scope(MemoryClass::gathered);
        rounded = padded.to(precision.param_dtype);
      }
      parameter.tensor.set_data(unpadded(rounded, parameter.tensor));
      slots_.push_back({parameter, padded, rounded, precision, parameter.tensor.requires_grad()});
    }
  }

  void place_gradients(BucketSizes sizes, MakeBucketReduction make_reduction) {
    std::vector<int64_t> numels;
    for (const Slot& slot : slots_)
      if (slot.trainable) numels.push_back(slot.padded.numel());
    if (reduces_each() && make_reduction != nullptr)
      reduction_ = make_reduction(numels, sizes, comm_);
    auto buckets = gradient_buckets(numels, sizes);
    bucket_numels_ = std::move(buckets.numels);
    size_t gradient = 0;
    for (Slot& slot : slots_) {
      if (!slot.trainable) continue;
      slot.gradient = gradient;
      slot.place = buckets.places[gradient++];
      const size_t group = group_of(slot.parameter.name, groups_);
      if (is_muon(groups_[group]))
        check_matrix(slot.parameter.name, slot.parameter.tensor.sizes().vec());
      pieces_[group].push_back({slot.padded, {}, {}, {}, {}});
      piece_slots_[group].push_back(&slot);
    }
  }

  // Rounds the parameters to their param_dtype again, because step() or the loading of a checkpoint
  // has changed the fp32 values.
  void begin() override {
    const at::NoGradGuard no_grad;
    for (const Slot& slot : slots_)
      if (!slot.rounded.is_same(slot.padded)) slot.rounded.copy_(slot.padded);
  }

  // Returns whether ddp reduces the gradients of each microbatch before it adds them to those of
  // other microbatches.
  bool reduces_each() const { return comm_ && !partition_.reduce_last; }
  bool adds_apart() const override { return reduces_each(); }
  void add(TreeSum& sums) override { sums.fold(buckets_); }
  std::vector<at::Tensor> take_sum() override { return std::exchange(buckets_, {}); }

  void end_microbatches() override {
    if (comm_ && !reduces_each()) reduce_all_buckets();
    const at::NoGradGuard no_grad;
    for (const auto& bucket : buckets_)
      bucket.div_(partition_.microbatches() * loss_scale_);
  }

  void compute_gradients(const at::Tensor& loss, bool begins) override {
    begins_ = begins;
    if (begins_) allocate_gradients();
    collected_.assign(slots_.size(), false);
    if (reduction_) reduction_->begin(buckets_);
    scaled_backward(loss, loss_scale_);
    const at::NoGradGuard no_grad;
    for (size_t i = 0; begins_ && i < slots_.size(); ++i)
      if (slots_[i].trainable && !collected_[i]) gradient(slots_[i]).zero_();
    if (reduction_)
      buckets_ = reduction_->finish();
    else if (reduces_each())
      reduce_all_buckets();
  }

  // Allocates the buckets of gradients; in ddp, with Communicator::empty(). The padding is zero,
  // and all other values are undefined.
  void allocate_gradients() {
    const at::NoGradGuard no_grad;
    MemoryScope scope(MemoryClass::gradients);
    buckets_.clear();
    for (const int64_t numel : bucket_numels_) {
      buckets_.push_back(comm_ ? comm_->empty(numel)
                               : at::empty({numel}, at::TensorOptions(device_)));
    }
    for (const Slot& slot : slots_) {
      if (!slot.trainable) continue;
      const auto& [bucket, offset] = slot.place;
      const int64_t end = offset + slot.parameter.tensor.numel();
      buckets_[bucket].slice(0, end, offset + slot.padded.numel()).zero_();
    }
  }

  // Returns the part of a bucket that is the gradient of the slot's parameter, as a view with the
  // shape of the parameter.
  at::Tensor gradient(const Slot& slot) const {
    const auto& [bucket, offset] = slot.place;
    return unpadded(buckets_[bucket].slice(0, offset), slot.parameter.tensor);
  }

  void collect(size_t index) {
    const at::NoGradGuard no_grad;
    const Slot& slot = slots_[index];
    at::Tensor& own = slot.parameter.tensor.mutable_grad();
    const at::Tensor sum = gradient(slot);
    begins_ ? sum.copy_(slot.as_sent(own)) : sum.add_(slot.as_sent(own));
    own.reset();
    collected_[index] = true;
    if (reduction_) reduction_->ready(slot.gradient);
  }

  void reduce_all_buckets() {
    std::vector<Handle> reductions;
    for (const at::Tensor& bucket : buckets_)
      reductions.push_back(
          comm_->all_reduce(bucket, "bucket." + std::to_string(reductions.size())));
    for (Handle& reduction : reductions)
      reduction.wait();
  }

  std::shared_ptr<Communicator> comm_;  // communicator of all ranks; null in --mode single
  c10::DeviceType device_;
  std::vector<ParameterGroup> groups_;
  std::vector<Slot> slots_;  // one slot for each parameter, in the order of registration
  // For each parameter group: the optimizer state of each of its parameters, called a piece.
  std::vector<std::vector<Piece>> pieces_;
  // For each piece in pieces_, the slot of its parameter.
  std::vector<std::vector<const Slot*>> piece_slots_;
  std::vector<int64_t> bucket_numels_;  // number of elements in each bucket
  std::vector<at::Tensor> buckets_;     // the buckets of gradients; empty between steps
  // Reduces the buckets during the backward pass; null: backward reduces no bucket.
  std::unique_ptr<BucketReduction> reduction_;
  // `begins_` and `collected_` describe the microbatch whose backward pass runs.
  bool begins_{};                // whether the microbatch's gradients begin a new partial sum
  std::vector<bool> collected_;  // for each slot, whether its gradient is in its bucket
};

}  // namespace

std::unique_ptr<Strategy> make_replica_strategy(const TrainConfig& config, Workload workload,
                                                ShardLayout layout,
                                                std::shared_ptr<Communicator> comm,
                                                MakeBucketReduction make_reduction) {
  return std::make_unique<ReplicaStrategy>(config, std::move(workload), std::move(layout),
                                           std::move(comm), make_reduction);
}

}  // namespace fsdp
