#pragma once

#include <plan/settings.h>

#include <string>

namespace fsdp {

// Returns the command that trains what was planned, in lines of at most 100 columns, to copy into a
// shell. For a run on several hosts it is a torchrun command, which must be started on each host.
// - `options`: further options of ./fsdp train, as in Candidate::options.
std::string train_command(const PlanSettings& settings, const TrainConfig& config,
                          const std::string& options = "");

// Returns notes that the user needs before running train_command(), each in a line; "" if there are
// none.
std::string notes_on_command(const PlanSettings& settings, const TrainConfig& config);

}  // namespace fsdp
