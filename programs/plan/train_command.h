#pragma once

#include <plan/settings.h>

#include <string>

namespace fsdp {

// Returns the command that trains what was planned, in lines of at most 100 columns, to copy into a
// shell. A run on several hosts gets the command of torchrun for each host.
// - `options`: further options of train, those of a Candidate.
std::string train_command(const PlanSettings& settings, const TrainConfig& config,
                          const std::string& options = "");

// Returns what the reader must know before the command runs, in lines; may be empty.
std::string notes_on_command(const PlanSettings& settings, const TrainConfig& config);

}  // namespace fsdp
