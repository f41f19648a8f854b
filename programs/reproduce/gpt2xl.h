#pragma once

#include <reproduce/long_run.h>
#include <reproduce/table.h>

#include <string>

namespace fsdp {

// The settings of the two long runs. They train GPT-2 XL with the published recipe, once with FSDP
// and once in one process.
struct FullSettings {
  std::string train;          // path of the train program
  std::string folder;         // for state, checkpoints and results
  std::string device{"cpu"};  // or cuda; on the CPU, the optimizer's state lies on the disk
  int world{8};               // ranks of FSDP
};

struct Full {
  LongResult fsdp, single;
};

// Makes the runs that are not finished, and reads the results of the others. Throws what
// run_or_go_on() throws.
Full run_full(const FullSettings& settings);

// Returns a table with losses, parameter sums, memory and time beside the published ones.
Table full_table(const FullSettings& settings, const Full& full);

}  // namespace fsdp
