#include <prediction/prediction.h>

#include <algorithm>
#include <utility>

namespace fsdp {
namespace {

// The bytes that a transport allocates for a call: some from when it is issued, more while it is
// waited for, and none after it.
struct TransportBuffers {
  int64_t issued{};
  int64_t waiting{};
};

// Gloo exchanges the ranks' parts through a buffer. For an all-reduce it pads the tensor,
// exchanges parts with a second such buffer, and sums its own part in a third. Shm copies what a
// rank gives and lies outside its arena. NCCL puts a sum of 16 bits beside the fp32 output; what
// else it needs is no tensor's.
TransportBuffers transport_buffers(const std::string& backend, const Schedule::Issue& call) {
  const int64_t bytes = call.numel * call.element_bytes;
  if (backend == "shm") {
    const int64_t given = call.operation == Operation::all_gather ? bytes / call.ranks : bytes;
    return {call.in_arena ? 0 : given, 0};
  }
  if (backend == "nccl") {
    const bool widens = call.operation == Operation::reduce_scatter && call.element_bytes < 4;
    return {widens ? bytes / call.ranks : 0, 0};
  }
  if (backend != "gloo") return {};
  if (call.operation != Operation::all_reduce) return {bytes, 0};
  const int64_t part = round_up(call.numel, call.ranks) / call.ranks * call.element_bytes;
  return {2 * call.ranks * part, part};
}

// The bytes alive as a step goes on, and their largest values in each phase.
class LiveBytesOfAStep {
 public:
  LiveBytesOfAStep(const Schedule& schedule, const std::string& backend)
      : backend_(backend), buffers_(schedule.actions.size()) {
    for (; at_ < schedule.actions.size(); ++at_)
      std::visit(*this, schedule.actions[at_]);
  }

  const PredictedBytes& peaks() const { return peaks_; }
  int64_t peak_of_all() const { return peak_of_all_; }

  void operator()(const Schedule::Enter& entered) {
    phase_ = entered.phase;
    for (size_t cls = 0; cls < kMemoryClasses; ++cls)
      add(static_cast<MemoryClass>(cls), 0);
  }
  void operator()(const Schedule::Allocate& block) { add(block.cls, block.bytes); }
  void operator()(const Schedule::Compute&) {}
  void operator()(const Schedule::Issue& call) {
    buffers_[at_] = transport_buffers(backend_, call);
    add(MemoryClass::communication, buffers_[at_].issued);
  }
  void operator()(const Schedule::Wait& wait) {
    const auto [issued, waiting] = std::exchange(buffers_[wait.action], {});
    add(MemoryClass::communication, waiting);
    add(MemoryClass::communication, -waiting - issued);
  }

 private:
  void add(MemoryClass cls, int64_t bytes) {
    const auto column = static_cast<size_t>(cls);
    now_[column] += bytes;
    all_ += bytes;
    peak_of_all_ = std::max(peak_of_all_, all_);
    if (!phase_) return;
    auto& peak = peaks_[static_cast<size_t>(*phase_)][column];
    peak = std::max(peak.value_or(0), now_[column]);
  }

  const std::string& backend_;
  std::vector<TransportBuffers> buffers_;  // by action: of a call that is under way
  size_t at_{};                            // the action
  std::optional<Phase> phase_;
  std::array<int64_t, kMemoryClasses> now_{};
  PredictedBytes peaks_{};
  int64_t all_{}, peak_of_all_{};  // classes together
};

}  // namespace

PredictedBytes predict_live_bytes(const Schedule& schedule, const std::string& backend) {
  PredictedBytes predicted = LiveBytesOfAStep(schedule, backend).peaks();
  const auto drop = [&](MemoryClass cls) {
    for (auto& phase : predicted)
      phase[static_cast<size_t>(cls)].reset();
  };
  drop(MemoryClass::rest);
  if (schedule.in_order) return predicted;
  drop(MemoryClass::gathered);
  drop(MemoryClass::gradients);
  return predicted;
}

int64_t predict_peak_bytes(const Schedule& schedule, const std::string& backend) {
  return LiveBytesOfAStep(schedule, backend).peak_of_all();
}

std::map<std::string, int64_t> predict_comm_bytes(const Schedule& schedule) {
  std::map<std::string, int64_t> bytes;
  for (const auto& action : schedule.actions) {
    const auto* call = std::get_if<Schedule::Issue>(&action);
    if (call == nullptr) continue;
    const int64_t times = call->operation == Operation::all_reduce ? 2 : 1;
    const int64_t ranks = call->ranks;
    const int64_t part = round_up(call->numel, ranks) / ranks * call->element_bytes;
    bytes[call->label.empty() ? to_string(call->operation) : std::string(call->label)] +=
        times * (ranks - 1) * part;
  }
  return bytes;
}

}  // namespace fsdp
