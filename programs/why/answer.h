#pragma once

#include <why/investigation.h>

#include <string>

namespace fsdp {

// Returns the answer of ./fsdp why: what is wrong, and the line of the student's code that made it
// so. `verbose`: also all functions that were running.
std::string answer(const Question& question, const std::vector<Finding>& findings, bool verbose);

}  // namespace fsdp
