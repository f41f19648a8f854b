#pragma once

#include <reproduce/long_run.h>
#include <reproduce/table.h>

namespace fsdp {

// The long part of the report: GPT-2 XL as it was published, as FSDP and as one process.
struct FullSettings {
  std::string train;          // program
  std::string folder;         // of state, checkpoints and results
  std::string device{"cpu"};  // there with the optimizer's state on the disk; or cuda
  int world{8};               // ranks of FSDP
};

struct Full {
  LongResult fsdp, single;
};

// Runs what has not been run yet. Throws std::runtime_error.
Full run_full(const FullSettings& settings);

// Losses, parameter sums, memory and time beside the published ones.
Table full_table(const FullSettings& settings, const Full& full);

}  // namespace fsdp
