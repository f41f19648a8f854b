#include <optim/update_rule.h>
#include <prediction/prediction.h>

#include <algorithm>
#include <vector>

namespace fsdp {
namespace {

constexpr int64_t kElement = 4;  // bytes of an fp32
constexpr int64_t kScalar = 8;   // bytes of the norm and of the loss, fp64

// The bytes alive as a step goes on, and their largest values in each phase.
class Replay {
 public:
  void enter(Phase phase) {
    phase_ = phase;
    for (size_t cls = 0; cls < kMemoryClasses; ++cls)
      note(cls);
  }
  void add(MemoryClass cls, int64_t bytes) {
    now_[static_cast<size_t>(cls)] += bytes;
    note(static_cast<size_t>(cls));
  }
  int64_t peak(size_t phase, size_t cls) const { return peaks_[phase][cls]; }

 private:
  void note(size_t cls) {
    int64_t& peak = peaks_[static_cast<size_t>(phase_)][cls];
    peak = std::max(peak, now_[cls]);
  }

  Phase phase_{};
  std::array<int64_t, kMemoryClasses> now_{};
  std::array<std::array<int64_t, kMemoryClasses>, kPhases> peaks_{};
};

// The communication buffers of one all-reduce: shm copies what lies outside its arena; gloo pads
// the tensor, exchanges parts with a second such buffer, and sums its own part into a third. What
// nccl needs is not a tensor's.
class AllReduceBuffers {
 public:
  AllReduceBuffers(const std::string& backend, int world_size, int64_t numel, int64_t element,
                   bool in_arena) {
    const bool gloo = backend == "gloo";
    const int64_t part = round_up(numel, world_size) / world_size * element;
    const bool copied = backend == "shm" && !in_arena;
    issued_ = gloo ? 2 * world_size * part : (copied ? numel * element : 0);
    waiting_ = gloo ? part : 0;
  }
  void issue(Replay& replay) const { replay.add(MemoryClass::communication, issued_); }
  void wait(Replay& replay) const {
    replay.add(MemoryClass::communication, waiting_);
    replay.add(MemoryClass::communication, -waiting_ - issued_);
  }

 private:
  int64_t issued_;
  int64_t waiting_;
};

void reduce_scalar(Replay& replay, const std::string& backend, int world_size) {
  const AllReduceBuffers buffers(backend, world_size, 1, kScalar, /*in_arena=*/false);
  buffers.issue(replay);
  buffers.wait(replay);
}

// Bytes of the optimizer's state for pieces of these sizes: two moments and a step count each.
int64_t state_bytes(const TrainConfig& config, const std::vector<int64_t>& piece_numels) {
  if (config.optimizer.kind == OptimizerOptions::Kind::sgd) return 0;
  int64_t bytes = 0;
  for (const int64_t numel : piece_numels)
    bytes += 2 * kElement * numel + kElement;
  return bytes;
}

// A step of fsdp: the units by their indices in the layout. The root, if it has parameters, is the
// first; the others come in the order of their forward.
class ShardedStep {
 public:
  ShardedStep(const TrainConfig& config, const ShardLayout& layout, int rank,
              const std::string& backend)
      : config_(config),
        layout_(layout),
        rank_(rank),
        gloo_(backend == "gloo"),
        backend_(backend),
        gathered_(layout.units.size()),
        gathering_(layout.units.size()),
        held_(layout.units.size()) {
    for (size_t unit = 0; unit < layout.units.size(); ++unit) {
      (layout.units[unit].root ? roots_ : order_).push_back(unit);
      replay_.add(MemoryClass::shards, shard_bytes(unit));
    }
  }

  Replay run(bool first) {
    const int64_t state = state_bytes(config_, piece_numels());
    if (!first) replay_.add(MemoryClass::optimizer_state, state);
    forward(first ? 0 : window());
    if (config_.steps == 0) return replay_;
    backward();
    replay_.enter(Phase::optimizer);
    if (config_.clip) reduce_scalar(replay_, backend_, layout_.world_size);
    if (first) replay_.add(MemoryClass::optimizer_state, state);
    return replay_;
  }

 private:
  // Units issued ahead of the running one.
  size_t window() const { return config_.prefetch ? static_cast<size_t>(config_.limit - 1) : 0; }

  int64_t full_bytes(size_t unit) const { return layout_.units[unit].padded_numel * kElement; }
  int64_t shard_bytes(size_t unit) const { return full_bytes(unit) / layout_.world_size; }

  // Issues its all-gather.
  void gather(size_t unit) {
    if (gathered_[unit]) return;
    gathered_[unit] = true;
    replay_.add(MemoryClass::gathered, full_bytes(unit));
    gathering_[unit] = true;
    replay_.add(MemoryClass::communication, exchange_bytes(unit));
  }
  // Waits for it.
  void use(size_t unit) {
    gather(unit);
    if (!gathering_[unit]) return;
    gathering_[unit] = false;
    replay_.add(MemoryClass::communication, -exchange_bytes(unit));
  }
  void free(size_t unit) {
    if (!gathered_[unit]) return;
    gathered_[unit] = false;
    replay_.add(MemoryClass::gathered, -full_bytes(unit));
  }
  // The gradients of the unit's parameters first registered in [begin, end) are computed.
  void compute_gradients(size_t unit, size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const auto& parameter = layout_.parameters[i];
      if (parameter.unit != unit || !parameter.trainable) continue;
      held_[unit] += parameter.numel * kElement;
      replay_.add(MemoryClass::gradients, parameter.numel * kElement);
    }
  }
  // The first parameter of a unit below the root: those of the root that come later, its last
  // layers, get their gradients before the units do, and those that come earlier after them.
  size_t first_below_root() const {
    const auto below = [&](const auto& parameter) { return !layout_.units[parameter.unit].root; };
    const auto first = std::find_if(layout_.parameters.begin(), layout_.parameters.end(), below);
    return static_cast<size_t>(first - layout_.parameters.begin()) % layout_.parameters.size();
  }

  void forward(size_t window) {
    replay_.enter(Phase::forward);
    const bool evaluation = config_.steps == 0;
    for (const size_t root : roots_)
      use(root);
    for (size_t i = 0; i < std::min(window, order_.size()); ++i)
      gather(order_[i]);
    for (size_t i = 0; i < order_.size(); ++i) {
      const size_t end = std::min(i + 1 + window, order_.size());
      use(order_[i]);
      for (size_t next = i + 1; next < end; ++next)
        gather(order_[next]);
      if (config_.reshard_after_forward || evaluation) free(order_[i]);
    }
    if (!evaluation) return;
    for (const size_t root : roots_)
      free(root);
    reduce_scalar(replay_, backend_, layout_.world_size);
  }

  void backward() {
    replay_.enter(Phase::backward);
    const size_t split = first_below_root();
    const size_t count = layout_.parameters.size();
    for (const size_t root : roots_)
      compute_gradients(root, split, count);
    for (size_t i = order_.size(); i-- > 0;) {
      const size_t first = i - std::min(i, window());
      use(order_[i]);
      for (size_t next = i; next-- > first;)
        gather(order_[next]);
      compute_gradients(order_[i], 0, count);
      finish(order_[i]);
    }
    for (const size_t root : roots_) {
      compute_gradients(root, 0, split);
      finish(root);
    }
    wait();
    reduce_scalar(replay_, backend_, layout_.world_size);  // the loss
  }

  void finish(size_t unit) {
    if (layout_.units[unit].trainable) {
      wait();
      replay_.add(MemoryClass::gradients, full_bytes(unit));  // into which they are moved
      replay_.add(MemoryClass::gradients, -held_[unit]);
      held_[unit] = 0;
      replay_.add(MemoryClass::sharded_gradients, shard_bytes(unit));
      replay_.add(MemoryClass::communication, exchange_bytes(unit));
      reducing_ = unit;
    }
    free(unit);
  }

  // For the reduction under way.
  void wait() {
    if (!reducing_) return;
    replay_.add(MemoryClass::communication, -exchange_bytes(*reducing_));
    replay_.add(MemoryClass::gradients, -full_bytes(*reducing_));
    reducing_.reset();
  }

  // gloo exchanges the ranks' parts through a buffer; over shm they are read where they lie.
  int64_t exchange_bytes(size_t unit) const { return gloo_ ? full_bytes(unit) : 0; }

  // What ShardedOptimizer makes of this rank's shards: neighbours of one group are one piece.
  std::vector<int64_t> piece_numels() const {
    struct Piece {
      size_t unit, group;
      int64_t begin, end;
    };
    std::vector<int64_t> numels;
    const auto groups = config_.parameter_groups();
    std::vector<std::optional<Piece>> last(groups.size());
    for (size_t unit = 0; unit < layout_.units.size(); ++unit) {
      const int64_t shard = layout_.units[unit].padded_numel / layout_.world_size;
      for (const auto& parameter : layout_.parameters) {
        if (parameter.unit != unit || !parameter.trainable) continue;
        const size_t group = group_of(parameter.name, groups);
        const int64_t begin = std::max(parameter.offset, rank_ * shard);
        const int64_t end =
            std::min(parameter.offset + round_up(parameter.numel, kAlignment), (rank_ + 1) * shard);
        if (begin >= end) continue;
        auto& piece = last[group];
        if (piece && piece->unit == unit && piece->end == begin) {
          piece->end = end;
          continue;
        }
        if (piece) numels.push_back(piece->end - piece->begin);
        piece = Piece{unit, group, begin, end};
      }
    }
    for (const auto& piece : last) {
      if (piece) numels.push_back(piece->end - piece->begin);
    }
    return numels;
  }

  const TrainConfig& config_;
  const ShardLayout& layout_;
  int rank_;
  bool gloo_;
  std::string backend_;
  std::vector<size_t> roots_;  // one or none
  std::vector<size_t> order_;
  std::vector<bool> gathered_;
  std::vector<bool> gathering_;
  std::vector<int64_t> held_;  // bytes of parameters' gradients, waiting for the unit's end
  std::optional<size_t> reducing_;
  Replay replay_;
};

bool nested(const ShardLayout& layout) {
  const auto inside = [](const auto& inner, const auto& outer) {
    return !outer.root && inner.name.starts_with(outer.name + ".");
  };
  return std::any_of(layout.units.begin(), layout.units.end(), [&](const auto& outer) {
    return std::any_of(layout.units.begin(), layout.units.end(),
                       [&](const auto& inner) { return inside(inner, outer); });
  });
}

// Elements of the buckets of gradients, as Replica cuts them from the last parameter to the first.
std::vector<int64_t> bucket_numels(const TrainConfig& config, const ShardLayout& layout) {
  // Single has a bucket per parameter; ddp's sizes are those of ddp_strategy.cpp.
  const int64_t first = config.mode == "ddp" ? 1 << 20 : 0;
  const int64_t others = config.mode == "ddp" ? 25 << 20 : 0;
  std::vector<int64_t> numels;
  int64_t room = 0;
  for (auto parameter = layout.parameters.rbegin(); parameter != layout.parameters.rend();
       ++parameter) {
    if (!parameter->trainable) continue;
    const int64_t numel = round_up(parameter->numel, kAlignment);
    if (numels.empty() || numel > room) {
      room = (numels.empty() ? first : others) / kElement;
      numels.push_back(0);
    }
    numels.back() += numel;
    room -= numel;
  }
  return numels;
}

// A step of single and ddp: whole parameters, a bucket of gradients from backward to step().
Replay replay_replica(const TrainConfig& config, const ShardLayout& layout,
                      const std::string& backend, bool first) {
  const bool ddp = config.mode == "ddp";
  const int processes = ddp ? layout.world_size : 1;
  Replay replay;
  std::vector<int64_t> pieces;
  for (const auto& parameter : layout.parameters) {
    const int64_t numel = round_up(parameter.numel, kAlignment);
    replay.add(MemoryClass::gathered, numel * kElement);
    if (parameter.trainable) pieces.push_back(numel);
  }
  const int64_t state = state_bytes(config, pieces);
  if (!first) replay.add(MemoryClass::optimizer_state, state);

  replay.enter(Phase::forward);
  if (config.steps == 0) {
    reduce_scalar(replay, backend, processes);
    return replay;
  }
  const auto buckets = bucket_numels(config, layout);
  replay.enter(Phase::backward);
  for (const int64_t numel : buckets)
    replay.add(MemoryClass::gradients, numel * kElement);
  if (ddp) {
    std::vector<AllReduceBuffers> reductions;
    for (const int64_t numel : buckets) {
      reductions.emplace_back(backend, processes, numel, kElement, /*in_arena=*/true);
      reductions.back().issue(replay);
    }
    for (const auto& reduction : reductions)
      reduction.wait(replay);
  } else if (layout.world_size > 1) {
    replay.enter(Phase::forward);  // of the next rank that is played
    replay.enter(Phase::backward);
  }
  reduce_scalar(replay, backend, processes);  // the loss
  replay.enter(Phase::optimizer);
  if (first) replay.add(MemoryClass::optimizer_state, state);
  return replay;
}

}  // namespace

PredictedBytes predict_live_bytes(const TrainConfig& config, const ShardLayout& layout, int rank,
                                  const std::string& backend, bool first) {
  const bool fsdp = config.mode == "fsdp";
  const Replay replay = fsdp ? ShardedStep(config, layout, rank, backend).run(first)
                             : replay_replica(config, layout, backend, first);
  const bool in_order = !fsdp || !nested(layout);
  PredictedBytes predicted;
  for (const Phase phase : {Phase::forward, Phase::backward, Phase::optimizer}) {
    if (config.steps == 0 && phase != Phase::forward) continue;
    for (size_t cls = 0; cls < kMemoryClasses; ++cls) {
      const auto name = static_cast<MemoryClass>(cls);
      const bool by_order = name == MemoryClass::gathered || name == MemoryClass::gradients;
      if (name == MemoryClass::rest || (by_order && !in_order)) continue;
      const auto row = static_cast<size_t>(phase);
      predicted[row][cls] = replay.peak(row, cls);
    }
  }
  return predicted;
}

std::map<std::string, int64_t> predict_comm_bytes(const TrainConfig& config,
                                                  const ShardLayout& layout) {
  const bool fsdp = config.mode == "fsdp";
  const bool training = config.steps > 0;
  const int64_t world_size = config.mode == "single" ? 1 : layout.world_size;
  const auto others_part = [&](int64_t bytes) { return bytes / world_size * (world_size - 1); };
  const auto all_reduce = [&](int64_t numel, int64_t element) {
    return 2 * others_part(round_up(numel, world_size) * element);
  };

  std::map<std::string, int64_t> bytes;
  bytes["metrics"] = all_reduce(1, kScalar);
  if (fsdp && training && config.clip) bytes["norm"] = all_reduce(1, kScalar);
  if (config.mode == "ddp" && training) {
    for (const int64_t numel : bucket_numels(config, layout)) {
      bytes["all_reduce"] += all_reduce(numel, kElement);
    }
  }
  for (const auto& unit : layout.units) {
    if (!fsdp) break;
    const int64_t once = others_part(unit.padded_numel * kElement);
    const bool again = training && config.reshard_after_forward && !unit.root;
    bytes["all_gather"] += once + (again ? once : 0);
    if (training && unit.trainable) bytes["reduce_scatter"] += once;
  }
  return bytes;
}

}  // namespace fsdp
