#pragma once

#include <why/investigation.h>

#include <optional>
#include <string>
#include <vector>

namespace fsdp {

// Runs the test of `question` with `program`, the same test program with the reference solution,
// and records it in question.folder. Then compares the wrong rank's steps in both runs.
// `investigation` and `command`: the Investigation of the student's run, and its command. Returns
// the student's line at which the runs part; nothing if they do not part, or if the test fails or
// cannot be recorded with the reference solution too.
std::optional<Finding> parting_from(const std::string& program, const Question& question,
                                    Investigation& investigation,
                                    const std::vector<std::string>& command);

}  // namespace fsdp
