#pragma once

#include <reproduce/long_run.h>
#include <reproduce/table.h>

#include <string>

namespace fsdp {

// The long part of the report: GPT-2 XL as it was published, as FSDP and as one process.
struct FullSettings {
  std::string train;          // the program
  std::string folder;         // for state, checkpoints and results
  std::string device{"cpu"};  // or cuda; on the CPU, the optimizer's state lies on the disk
  int world{8};               // ranks of FSDP
};

struct Full {
  LongResult fsdp, single;
};

// Runs whatever has not been run yet; what has, is read. Throws what run_or_go_on() throws.
Full run_full(const FullSettings& settings);

// Losses, parameter sums, memory and time beside the published ones.
Table full_table(const FullSettings& settings, const Full& full);

}  // namespace fsdp
