#pragma once

#include <prediction/schedule.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace fsdp {

class Communicator;

// What a step should cost, computed from the sizes of the units alone. The trainer and the tests
// compare it with what was measured, to the byte.

// What moves the bytes between all ranks, the ranks of a shard group, and replicas: "shm", "gloo"
// or "nccl", never "auto".
struct Transports {
  Transports(const std::string& all) : world(all), shards(all), replicas(all) {}
  Transports(const char* all) : Transports(std::string(all)) {}
  // Of a run over several hosts.
  Transports(const Communicator& world, const Communicator& strategy);

  const std::string& of(const Schedule::Issue& call) const {
    if (call.ranks == world_size) return world;
    return call.stride > 1 ? replicas : shards;
  }
  std::string world, shards, replicas;
  int world_size{};  // 0: they are one
};

// By phase and class: the largest number of bytes that are alive. There is no value where nothing
// is predicted: in a phase that the schedule does not enter; in the class `other` unless
// schedule.has_activations; and in the classes `gathered` and `gradients` unless schedule.in_order.
// The loss is averaged in the phase backward.
using PredictedBytes = std::array<std::array<std::optional<int64_t>, kMemoryClasses>, kPhases>;

// By phase: that of all classes together; no value where that of a class is not predicted.
using PredictedTotals = std::array<std::optional<int64_t>, kPhases>;

// The moment at which most bytes are alive, with activations if the schedule has them.
struct Peak {
  LiveBytes bytes;
  Phase phase{Phase::init};    // init: before the step
  std::optional<size_t> unit;  // whose module runs, if it is not the root's
};

struct PredictedMemory {
  PredictedBytes bytes;
  PredictedTotals totals;
  Peak peak;
};

PredictedMemory predict_memory(const Schedule& schedule, const Transports& transports);
// By action: what is alive after it.
std::vector<LiveBytes> predict_live_bytes(const Schedule& schedule, const Transports& transports);

// The bytes that a rank receives, by the textbook count of communicator.h. A key is an operation
// ("all_gather", "reduce_scatter", "all_reduce", which fsdp calls between replicas) or the label of
// what serves no parameter ("norm", "metrics"). What is never called has no key.
std::map<std::string, int64_t> predict_comm_bytes(const Schedule& schedule);

}  // namespace fsdp
