#pragma once

#include <diff/run_hashes.h>

#include <cstdint>
#include <nlohmann/json.hpp>

namespace fsdp {

// Selects the events of a run that its receipt records.
// - All losses and norms, the parameters before the first step, and parameters and moments after
//   the last one.
// - The parameters after a step whose checkpoint is saved, so that an auditor can compare the
//   checkpoint with the receipt.
// - One in `every` of all other events, except gathered parameters: they are the parameters of the
//   step before. Which ones depends only on the event's key, so whoever computes the event again
//   knows whether the receipt must have it.
struct Sampling {
  int64_t every{8};       // 1: all
  int64_t first_step{};   // of the run
  int64_t end_step{};     // the step after the last one
  int64_t save_every{0};  // 0: the run saves no checkpoints

  bool selects(const EventKey& key) const;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Sampling, every, first_step, end_step, save_every)

}  // namespace fsdp
