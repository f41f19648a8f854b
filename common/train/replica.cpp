#include <memory/live_bytes.h>
#include <train/build_model.h>
#include <train/replica.h>

#include <algorithm>
#include <cmath>

namespace fsdp {
namespace {

// The same values in storage of a multiple of kAlignment elements.
at::Tensor move_to_padded_storage(at::Tensor& parameter, c10::DeviceType device) {
  at::NoGradGuard no_grad;
  MemoryScope scope(MemoryClass::gathered);
  auto storage = at::zeros({round_up(parameter.numel(), kAlignment)},
                           parameter.options().device(device).requires_grad(false));
  const auto view = storage.narrow(0, 0, parameter.numel()).view(parameter.sizes());
  view.copy_(parameter);
  parameter.set_data(view);
  return storage;
}

}  // namespace

Replica::Replica(Module& model, const TrainConfig& config, ShardLayout layout,
                 const std::vector<int64_t>& bucket_bytes)
    : layout_(std::move(layout)), groups_(config.parameter_groups()), device_(config.comm.device) {
  auto parameters = distinct_parameters(model);
  layout_.check(parameters);
  for (auto& parameter : parameters) {
    at::Tensor storage = move_to_padded_storage(parameter.tensor, device_);
    const bool trainable = parameter.tensor.requires_grad();
    slots_.push_back({parameter, storage, 0, 0, trainable});
  }
  int64_t room = 0;
  for (auto slot = slots_.rbegin(); slot != slots_.rend(); ++slot) {
    if (!slot->trainable) continue;
    const int64_t numel = slot->padded.numel();
    if (bucket_numels_.empty() || numel > room) {
      room = bucket_bytes[std::min(bucket_numels_.size(), bucket_bytes.size() - 1)] / 4;
      bucket_numels_.push_back(0);
    }
    slot->bucket = bucket_numels_.size() - 1;
    slot->offset = bucket_numels_.back();
    bucket_numels_.back() += numel;
    room -= numel;
  }
  pieces_.resize(groups_.size());
  piece_slots_.resize(groups_.size());
  for (const Slot& slot : slots_) {
    if (!slot.trainable) continue;
    const size_t group = group_of(slot.parameter.name, groups_);
    pieces_[group].push_back({slot.padded, {}, {}, {}, {}});
    piece_slots_[group].push_back(&slot);
  }
}

void Replica::allocate_gradients(const Communicator* comm) {
  at::NoGradGuard no_grad;
  MemoryScope scope(MemoryClass::gradients);
  buckets_.clear();
  for (const int64_t numel : bucket_numels_) {
    buckets_.push_back(comm != nullptr ? comm->empty(numel)
                                       : at::empty({numel}, at::TensorOptions(device_)));
  }
  for (const Slot& slot : slots_) {
    if (!slot.trainable) continue;
    const int64_t end = slot.offset + slot.parameter.tensor.numel();
    buckets_[slot.bucket].slice(0, end, slot.offset + slot.padded.numel()).zero_();
  }
}

at::Tensor Replica::gradient(const Slot& slot) const {
  const auto& parameter = slot.parameter.tensor;
  return buckets_[slot.bucket].narrow(0, slot.offset, parameter.numel()).view(parameter.sizes());
}

at::Tensor Replica::shard_of_gradients(size_t unit, int rank) const {
  const int64_t numel = layout_.units[unit].padded_numel / layout_.world_size;
  const int64_t shard_begin = numel * rank;
  auto shard = at::zeros({numel}, at::TensorOptions(device_));
  for (size_t i = 0; i < slots_.size(); ++i) {
    const auto& place = layout_.parameters[i];
    const int64_t begin = std::max(place.offset, shard_begin);
    const int64_t end = std::min(place.offset + place.numel, shard_begin + numel);
    if (place.unit != unit || !slots_[i].trainable || begin >= end) continue;
    shard.slice(0, begin - shard_begin, end - shard_begin)
        .copy_(gradient(slots_[i]).flatten().slice(0, begin - place.offset, end - place.offset));
  }
  return shard;
}

double Replica::clip_grad_norm(double max_norm) {
  at::NoGradGuard no_grad;
  double total = 0;
  for (int rank = 0; rank < layout_.world_size; ++rank) {
    double of_rank = 0;
    for (size_t unit = 0; unit < layout_.units.size(); ++unit) {
      if (layout_.units[unit].trainable) of_rank += sum_of_squares(shard_of_gradients(unit, rank));
    }
    total += of_rank;
  }
  const double norm = std::sqrt(total);
  const double scale = max_norm / (norm + 1e-6);
  if (scale < 1.0) {
    for (auto& bucket : buckets_)
      bucket.mul_(scale);
  }
  return norm;
}

void Replica::step() {
  at::NoGradGuard no_grad;
  for (size_t group = 0; group < groups_.size(); ++group) {
    for (size_t i = 0; i < pieces_[group].size(); ++i) {
      const Slot& slot = *piece_slots_[group][i];
      pieces_[group][i].gradient =
          buckets_[slot.bucket].narrow(0, slot.offset, slot.padded.numel());
    }
    update(groups_[group].options, pieces_[group]);
    for (Piece& piece : pieces_[group])
      piece.gradient.reset();
  }
  buckets_.clear();
}

void Replica::full_parameters(const ParameterVisitor& visit) const {
  for (const Slot& slot : slots_)
    visit(slot.parameter.name, slot.parameter.tensor.detach().cpu());
}

ReplicaStrategy::ReplicaStrategy(const TrainConfig& config, ShardLayout layout,
                                 const std::vector<int64_t>& bucket_bytes)
    : model_(build_model(config)), replica_(*model_, config, std::move(layout), bucket_bytes) {
  move_buffers(*model_, config.comm.device);
}

double ReplicaStrategy::clip_grad_norm(double max_norm) {
  live_bytes::enter(Phase::optimizer);
  return replica_.clip_grad_norm(max_norm);
}

void ReplicaStrategy::step() {
  live_bytes::enter(Phase::optimizer);
  replica_.step();
}

}  // namespace fsdp
