#pragma once

#include <diff/run_hashes.h>

#include <cstdint>
#include <nlohmann/json.hpp>

namespace fsdp {

// Selects the events of a run that its receipt records:
// - all losses and norms, the parameters before the run's first step, and the parameters and
//   moments after its last step;
// - the parameters after a step whose checkpoint is saved, so that an auditor can compare the
//   checkpoint with the receipt;
// - about one in `every` of all other events, except gathered parameters, which equal the
//   parameters after the previous step.
// Whether an event is selected depends only on its key and on these settings. So an auditor that
// computes the event again knows whether the receipt must have it.
struct Sampling {
  // Besides the events that are recorded in any case, about one in `every` events is recorded.
  int64_t every{8};
  int64_t first_step{};   // first step of the run, counted from 0
  int64_t end_step{};     // the step after the run's last one
  int64_t save_every{0};  // steps between checkpoints; 0: the run saves no checkpoints

  bool selects(const EventKey& key) const;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Sampling, every, first_step, end_step, save_every)

}  // namespace fsdp
