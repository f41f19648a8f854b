#include <comm/communicator.h>
#include <prediction/prediction.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace fsdp {
namespace {

// The numbers of bytes that a transport allocates for one collective call. The transport frees all
// of them when the wait for the call ends.
struct TransportBuffers {
  int64_t issued{};   // bytes of the buffers that are allocated when the call is issued
  int64_t waiting{};  // bytes of the buffers that are allocated when the wait for the call begins
  // Bytes that sum_as_tree() allocates temporarily during the wait; they count as activations.
  int64_t summing{};
};

// Returns the buffers that a backend allocates for a call:
// - gloo exchanges the ranks' parts through a buffer. For an all-reduce it pads the tensor,
//   exchanges parts through a second such buffer, and sums its own part in a third one.
// - shm copies a rank's input if it lies outside the arenas (memory for tensors that ranks share).
// - nccl allocates a sum of 16 bits beside the fp32 output. Its other memory is not in tensors.
TransportBuffers transport_buffers(const std::string& backend, const Schedule::Issue& call) {
  const int64_t bytes = call.numel * call.element_bytes;
  if (backend == "shm") {
    const int64_t given = call.operation == Operation::all_gather ? bytes / call.ranks : bytes;
    return {call.in_arena ? 0 : given, 0, 0};
  }
  if (backend == "nccl") {
    const bool widens = call.operation == Operation::reduce_scatter && call.element_bytes < 4;
    return {widens ? bytes / call.ranks : 0, 0, 0};
  }
  if (backend != "gloo") return {};
  if (call.operation != Operation::all_reduce) return {bytes, 0, 0};
  const int64_t part = call.part() * call.element_bytes;
  return {2 * call.ranks * part, part, 0};
}

// Returns the bytes that sum_as_tree() allocates temporarily while a rank adds its part of the sum
// of a collective. They count as activations.
int64_t sum_scratch(const std::string& backend, const Schedule::Issue& call) {
  constexpr int64_t kChunk = 16384;  // elements that sum_as_tree() adds at a time
  if (backend == "nccl" || call.operation == Operation::all_gather) return 0;
  int64_t numel = call.part();
  if (backend == "shm" && call.operation == Operation::all_reduce) {
    const int64_t each = round_up(numel, kAlignment);
    numel = std::clamp<int64_t>(call.numel - call.place * each, 0, each);
  }
  const int64_t chunk = std::min(numel, kChunk);
  const int64_t levels =
      std::max<int64_t>(1, std::bit_width(static_cast<uint64_t>(call.ranks)) - 1);
  // If elements have 16 bits, sum_as_tree() converts the chunk of each rank to fp32.
  const int64_t widened = call.element_bytes < 4 ? call.ranks : 0;
  return (levels + widened) * chunk * std::max<int64_t>(call.element_bytes, 4);
}

// Computes how many bytes are alive after each action of a step, and the most in each phase.
class LiveBytesOfAStep {
 public:
  // Appends to `after` the bytes alive after each action of `schedule`, unless `after` is null.
  LiveBytesOfAStep(const Schedule& schedule, const Transports& transports,
                   std::vector<LiveBytes>* after = nullptr)
      : transports_(transports),
        has_activations_(schedule.has_activations),
        buffers_(schedule.actions.size()) {
    for (; at_ < schedule.actions.size(); ++at_) {
      std::visit(*this, schedule.actions[at_]);
      if (after != nullptr) after->push_back(now_);
    }
  }

  const PredictedMemory& memory() const { return memory_; }

  void operator()(const Schedule::Enter& entered) {
    phase_ = entered.phase;
    for (size_t cls = 0; cls < kMemoryClasses; ++cls)
      add(static_cast<MemoryClass>(cls), 0);
  }
  void operator()(const Schedule::Allocate& block) { add(block.cls, block.bytes); }
  void operator()(const Schedule::Compute& part) {
    unit_ = part.unit;
    add(MemoryClass::other, part.peak - now_[MemoryClass::other]);
    add(MemoryClass::other, part.activations - now_[MemoryClass::other]);
  }
  void operator()(const Schedule::Issue& call) {
    const std::string& backend = transports_.of(call);
    buffers_[at_] = transport_buffers(backend, call);
    if (has_activations_) buffers_[at_].summing = sum_scratch(backend, call);
    add(MemoryClass::communication, buffers_[at_].issued);
  }
  void operator()(const Schedule::Wait& wait) {
    const auto [issued, waiting, summing] = std::exchange(buffers_[wait.action], {});
    add(MemoryClass::communication, waiting);
    add(MemoryClass::other, summing);
    add(MemoryClass::other, -summing);
    add(MemoryClass::communication, -waiting - issued);
  }

 private:
  void add(MemoryClass cls, int64_t bytes) {
    now_.by_class[static_cast<size_t>(cls)] += bytes;
    now_.total += bytes;
    Peak& most = memory_.peak;
    if (now_.total > most.bytes.total) most = {now_, phase_.value_or(Phase::init), unit_};
    if (!phase_) return;
    const auto raise = [](std::optional<int64_t>& peak, int64_t to) {
      peak = std::max(peak.value_or(0), to);
    };
    const auto phase = static_cast<size_t>(*phase_);
    raise(memory_.bytes[phase][static_cast<size_t>(cls)], now_[cls]);
    raise(memory_.totals[phase], now_.total);
  }

  const Transports& transports_;
  const bool has_activations_;
  // For each action of the schedule: if it issues a call that the rank has not waited for yet, the
  // buffers of the call; otherwise zeros.
  std::vector<TransportBuffers> buffers_;
  size_t at_{};  // index of the schedule's action that is being visited
  std::optional<Phase> phase_;
  std::optional<size_t> unit_;  // the unit whose module runs; empty: the root's module runs
  LiveBytes now_;
  PredictedMemory memory_{};
};

}  // namespace

Transports::Transports(const Communicator& world, const Communicator& strategy)
    : world(world.backend()),
      shards(strategy.backend()),
      replicas(strategy.replicas() ? strategy.replicas()->backend() : world.backend()),
      world_size(world.world_size()) {}

PredictedMemory predict_memory(const Schedule& schedule, const Transports& transports) {
  PredictedMemory predicted = LiveBytesOfAStep(schedule, transports).memory();
  const auto drop = [&](MemoryClass cls) {
    for (auto& phase : predicted.bytes)
      phase[static_cast<size_t>(cls)].reset();
    predicted.totals = {};
  };
  if (!schedule.has_activations) drop(MemoryClass::other);
  if (schedule.in_order) return predicted;
  drop(MemoryClass::gathered);
  drop(MemoryClass::gradients);
  return predicted;
}

std::vector<LiveBytes> predict_live_bytes(const Schedule& schedule, const Transports& transports) {
  std::vector<LiveBytes> after;
  LiveBytesOfAStep(schedule, transports, &after);
  return after;
}

std::map<std::string, int64_t> predict_comm_bytes(const Schedule& schedule) {
  std::map<std::string, int64_t> bytes;
  for (const auto& action : schedule.actions) {
    const auto* call = std::get_if<Schedule::Issue>(&action);
    if (call == nullptr) continue;
    bytes[call->label.empty() ? to_string(call->operation) : std::string(call->label)] +=
        call->bytes_received();
  }
  return bytes;
}

}  // namespace fsdp
