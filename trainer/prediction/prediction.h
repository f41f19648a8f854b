#pragma once

#include <prediction/schedule.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace fsdp {

class Communicator;

// The predicted memory and traffic of a step, computed from its Schedule. The trainer and the tests
// compare the prediction with measurements, to the byte.

// The transports of the calls between all ranks, between the ranks of a shard group, and between
// replicas: "shm", "gloo" or "nccl", never "auto".
struct Transports {
  Transports(const std::string& all) : world(all), shards(all), replicas(all) {}
  Transports(const char* all) : Transports(std::string(all)) {}
  // The transports that the communicators of a run have. On several hosts they can differ.
  Transports(const Communicator& world, const Communicator& strategy);

  const std::string& of(const Schedule::Issue& call) const {
    if (call.ranks == world_size) return world;
    return call.stride > 1 ? replicas : shards;
  }
  std::string world, shards, replicas;
  int world_size{};  // number of all ranks; 0: all collectives use the same transport
};

// For each phase of a step and each memory class: the largest number of bytes alive. A value is
// empty if nothing is predicted:
// - in a phase that the schedule does not enter;
// - in MemoryClass::other unless schedule.has_activations;
// - in MemoryClass::gathered and MemoryClass::gradients unless schedule.in_order.
// Averaging the loss over ranks belongs to the phase `backward`.
using PredictedBytes = std::array<std::array<std::optional<int64_t>, kMemoryClasses>, kPhases>;

// For each phase of a step: the largest number of bytes alive in all memory classes together; empty
// if the bytes of a class are not predicted.
using PredictedTotals = std::array<std::optional<int64_t>, kPhases>;

// The moment of a step at which most bytes are alive. Activations are included if the schedule has
// them.
struct Peak {
  LiveBytes bytes;
  Phase phase{Phase::init};    // the phase at this moment; init: before the step
  std::optional<size_t> unit;  // the unit whose module runs; empty: the root's module runs
};

struct PredictedMemory {
  PredictedBytes bytes;
  PredictedTotals totals;
  Peak peak;
};

PredictedMemory predict_memory(const Schedule& schedule, const Transports& transports);
// Returns the bytes alive after each action of the schedule.
std::vector<LiveBytes> predict_live_bytes(const Schedule& schedule, const Transports& transports);

// Returns the bytes that a rank receives in a step, as textbook_bytes() counts them (comm/call.h).
// A key is an operation ("all_gather" or "reduce_scatter", which fsdp calls, or "all_reduce", which
// ddp calls, and fsdp between replicas) or the label of a call that serves no parameter ("norm",
// "metrics"). An operation that is never called has no key.
std::map<std::string, int64_t> predict_comm_bytes(const Schedule& schedule);

}  // namespace fsdp
