#include <memory/live_bytes.h>
#include <optim/p_norm.h>
#include <strategies/replica.h>

#include <map>

namespace fsdp {
namespace {

// The view of such storage that is shaped as the parameter.
at::Tensor unpadded(const at::Tensor& storage, const at::Tensor& parameter) {
  return storage.narrow(0, 0, parameter.numel()).view(parameter.sizes());
}

// The same values in storage of a multiple of kAlignment elements.
at::Tensor in_padded_storage(const at::Tensor& parameter, c10::DeviceType device, MemoryClass cls) {
  MemoryScope scope(cls);
  auto storage = at::zeros({round_up(parameter.numel(), kAlignment)},
                           parameter.options().device(device).requires_grad(false));
  unpadded(storage, parameter).copy_(parameter);
  return storage;
}

}  // namespace

Replica::Replica(Module& model, const TrainConfig& config, BucketSizes bucket_sizes)
    : groups_(config.parameter_groups()),
      device_(config.comm.device),
      pieces_(groups_.size()),
      piece_slots_(groups_.size()) {
  at::NoGradGuard no_grad;
  std::vector<int64_t> numels;
  for (auto& parameter : distinct_parameters(model)) {
    const MixedPrecisionPolicy precision = config.precision_of(parameter.name);
    const bool rounds = precision.rounds_parameters();
    const at::Tensor padded = in_padded_storage(
        parameter.tensor, device_, rounds ? MemoryClass::shards : MemoryClass::gathered);
    at::Tensor rounded = padded;
    if (rounds) {
      MemoryScope scope(MemoryClass::gathered);
      rounded = padded.to(precision.param_dtype);
    }
    parameter.tensor.set_data(unpadded(rounded, parameter.tensor));
    const bool trainable = parameter.tensor.requires_grad();
    slots_.push_back({parameter, padded, rounded, precision, trainable});
    if (trainable) numels.push_back(padded.numel());
  }
  auto buckets = gradient_buckets(numels, bucket_sizes);
  bucket_numels_ = std::move(buckets.numels);
  auto place = buckets.places.begin();
  for (Slot& slot : slots_) {
    if (!slot.trainable) continue;
    slot.place = *place++;
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
    const auto& [bucket, offset] = slot.place;
    const int64_t end = offset + slot.parameter.tensor.numel();
    buckets_[bucket].slice(0, end, offset + slot.padded.numel()).zero_();
  }
}

at::Tensor Replica::gradient(const Slot& slot) const {
  const auto& parameter = slot.parameter.tensor;
  const auto& [bucket, offset] = slot.place;
  return buckets_[bucket].narrow(0, offset, parameter.numel()).view(parameter.sizes());
}

void Replica::round_parameters() {
  at::NoGradGuard no_grad;
  for (const Slot& slot : slots_)
    if (!slot.rounded.is_same(slot.padded)) slot.rounded.copy_(slot.padded);
}

double Replica::clip_grad_norm(double max_norm, double norm_type) {
  return fsdp::clip_grad_norm(buckets_, max_norm, norm_type);  // padding is zero, and adds nothing
}

void Replica::step() {
  at::NoGradGuard no_grad;
  for (size_t group = 0; group < groups_.size(); ++group) {
    for (size_t i = 0; i < pieces_[group].size(); ++i) {
      const Slot& slot = *piece_slots_[group][i];
      pieces_[group][i].gradient =
          buckets_[slot.place.bucket].narrow(0, slot.place.offset, slot.padded.numel());
    }
    update(groups_[group].options, pieces_[group]);
    for (Piece& piece : pieces_[group])
      piece.gradient.reset();
  }
  buckets_.clear();
}

void Replica::skip_step() {
  for (size_t group = 0; group < groups_.size(); ++group)
    allocate_state(groups_[group].options, pieces_[group]);
  buckets_.clear();
}

std::vector<StateRange> Replica::state() {
  const at::NoGradGuard no_grad;
  std::map<const Slot*, const Piece*> pieces;
  for (size_t group = 0; group < groups_.size(); ++group) {
    allocate_state(groups_[group].options, pieces_[group]);
    for (size_t i = 0; i < pieces_[group].size(); ++i)
      pieces[piece_slots_[group][i]] = &pieces_[group][i];
  }
  std::vector<StateRange> ranges;
  for (const Slot& slot : slots_) {
    const int64_t numel = slot.parameter.tensor.numel();
    if (numel == 0) continue;
    StateRange range{slot.parameter.name, 0, numel, slot.padded.narrow(0, 0, numel), {}, {}, {}};
    const auto piece = pieces.find(&slot);
    if (piece != pieces.end() && piece->second->step.defined()) {
      range.exp_avg = piece->second->exp_avg.narrow(0, 0, numel);
      range.exp_avg_sq = piece->second->exp_avg_sq.narrow(0, 0, numel);
      range.step = piece->second->step;
    }
    ranges.push_back(std::move(range));
  }
  return ranges;
}

void Replica::full_parameters(const ParameterVisitor& visit) const {
  for (const Slot& slot : slots_)
    visit(slot.parameter.name, unpadded(slot.padded, slot.parameter.tensor).cpu());
}

}  // namespace fsdp
