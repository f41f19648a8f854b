#pragma once

#include <why/investigation.h>

#include <string>

namespace fsdp {

// Returns the text that ./fsdp why prints: what is wrong in the test, and the lines of the
// student's code that caused it. `verbose`: the text also has all functions that were running.
std::string answer(const Question& question, const std::vector<Finding>& findings, bool verbose);

}  // namespace fsdp
