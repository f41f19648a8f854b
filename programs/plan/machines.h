#pragma once

#include <planning/plan.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp {

// A host of GPUs of a known kind.
struct KnownMachine {
  std::string name;  // "8xA100-80GB"
  int gpus{};        // of a host
  int64_t memory{};  // [bytes] of a GPU, as its name gives them, in powers of ten
  Machine machine;
};

// Reads "NxNAME", where NAME is one of gpu_names(). The speeds are shares of the published peaks
// that runs reach (docs/plan.md has both, with their sources). GPUs whose hosts have no usual
// network have no link between hosts.
// Throws: UsageError, which lists the names.
KnownMachine parse_machine(const std::string& text);

std::vector<std::string> gpu_names();

// Returns the speeds of a known machine, those of a rank: "156 Tflop/s in bf16, ...".
std::string speeds_text(const Machine& machine);

}  // namespace fsdp
