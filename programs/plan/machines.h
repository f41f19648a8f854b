#pragma once

#include <planning/plan.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp {

// A host of GPUs of a known kind.
struct KnownMachine {
  std::string name;  // name of the machine, as in --machine: "8xA100-80GB"
  int gpus{};        // number of GPUs in a host
  int64_t memory{};  // [bytes] memory of a GPU: for A100-80GB, 80e9
  Machine machine;
};

// Parses the value of --machine, "NxNAME", where NAME is one of gpu_names(). The speeds of the
// result are the fractions of the published peaks that training reaches (docs/plan.md has these
// numbers, with their sources). If hosts of this GPU have no usual network, the machine has no link
// between hosts.
// Throws: UsageError if NAME is unknown, which lists the names, or if N is not a number from 1 to
// 64.
KnownMachine parse_machine(const std::string& text);

std::vector<std::string> gpu_names();

// Returns a text with the speeds of a rank on a machine of parse_machine():
// "156 Tflop/s in bf16, ...".
std::string speeds_text(const Machine& machine);

}  // namespace fsdp
