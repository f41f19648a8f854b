#pragma once

#include <memory/live_bytes.h>
#include <meta_init.h>
#include <planning/trace_on_meta.h>
#include <prediction/prediction.h>
#include <testing/multi_rank.h>

#include <functional>
#include <string>

// The functions of this file check whether the peaks of live bytes in a step are the predicted
// ones.
namespace fsdp {

// The smallest and the largest number of bytes that a measured peak may have.
struct Allowed {
  int64_t least, most;
};
using AllowedPeak = std::function<Allowed(Phase phase, MemoryClass cls, int64_t predicted)>;

inline Allowed exactly(Phase, MemoryClass, int64_t predicted) {
  return {predicted, predicted};
}

// Returns the schedule of a step of `rank` after the first step, in the order in which the
// workload's model runs. The schedule has no activations.
inline Schedule traced_step(const TrainConfig& config, const Workload& workload,
                            const ShardLayout& layout, int rank) {
  ModelTraces traces = trace_on_meta(config, workload, layout, construct_on_meta);
  traces.has_activations = false;
  return schedule(config, layout, rank, /*first=*/false, traces);
}

// Compares, on a rank, the peaks since live_bytes::reset() with the predicted ones, in each phase
// of a step and for each predicted class. It leaves out `communication`, which the trainer, absent
// here, uses to average the loss.
inline void observe_peaks(TestRank& rank, const PredictedBytes& predicted,
                          const AllowedPeak& allowed = exactly) {
  std::string wrong;
  int compared = 0;
  for (const Phase phase : {Phase::forward, Phase::backward, Phase::optimizer}) {
    for (size_t c = 0; c < kMemoryClasses; ++c) {
      const auto cls = static_cast<MemoryClass>(c);
      const auto expected = predicted[static_cast<size_t>(phase)][c];
      if (!expected || cls == MemoryClass::communication) continue;
      ++compared;
      const int64_t measured = live_bytes::peak(phase)[cls];
      const auto [least, most] = allowed(phase, cls, *expected);
      if (least <= measured && measured <= most) continue;
      wrong += std::string(to_string(phase)) + " " + to_string(cls) + ": predicted " +
               std::to_string(*expected) + ", measured " + std::to_string(measured) + "; ";
    }
  }
  rank.observe("wrong", wrong);
  rank.observe("compared", compared);
}

inline void expect_predicted_peaks(const RankRun& run) {
  expect_on_all_ranks(run, "wrong", "");
  // The number of compared peaks: one in each of 3 phases for each of 5 memory classes, which are
  // all classes except communication and other.
  expect_on_all_ranks(run, "compared", 15);
}

}  // namespace fsdp
