#pragma once

#include <prediction/schedule.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace fsdp {

// What a step should cost, computed from the sizes of the units alone. The trainer and the tests
// compare it with what was measured, to the byte.

// The largest number of bytes of each class that are alive in each phase. `backend` is "shm",
// "gloo" or "nccl", never "auto". There is no value where nothing is predicted: in a phase that the
// schedule does not enter, in the class `rest`, and, unless schedule.in_order, in the classes
// `gathered` and `gradients`. The loss is averaged in the phase backward.
using PredictedBytes = std::array<std::array<std::optional<int64_t>, kMemoryClasses>, kPhases>;
PredictedBytes predict_live_bytes(const Schedule& schedule, const std::string& backend);

// The largest number of bytes of all classes but `rest` that are alive at a time.
int64_t predict_peak_bytes(const Schedule& schedule, const std::string& backend);

// The bytes that a rank receives, by the textbook count of communicator.h. A key is an operation
// ("all_gather", "reduce_scatter", "all_reduce", which fsdp calls between replicas) or the label of
// what serves no parameter ("norm", "metrics"). What is never called has no key.
std::map<std::string, int64_t> predict_comm_bytes(const Schedule& schedule);

}  // namespace fsdp
