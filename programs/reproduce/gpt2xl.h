#pragma once

#include <reproduce/long_run.h>
#include <reproduce/table.h>

#include <string>

namespace fsdp {

// The settings of the two long training runs. Both train GPT-2 XL with the published recipe, the
// first one with FSDP, the second one in a single process.
struct FullSettings {
  std::string train;   // path of the train program
  std::string folder;  // folder for state, checkpoints and results
  // "cpu" or "cuda"; on the CPU, the optimizer's state is in files on the disk.
  std::string device{"cpu"};
  int world{8};  // number of ranks of the run with FSDP
};

struct Full {
  LongResult fsdp, single;
};

// Runs or continues those of the two training runs that are not finished, and returns the results
// of both. Throws what run_or_go_on() throws.
Full run_full(const FullSettings& settings);

// Returns a table with the losses, parameter sums, memory and time of the two runs beside the
// published numbers.
Table full_table(const FullSettings& settings, const Full& full);

}  // namespace fsdp
