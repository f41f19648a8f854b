#pragma once

#include <reproduce/train_result.h>

#include <filesystem>
#include <vector>

namespace fsdp {

// The paths of the files of a long training run; all are in one folder.
struct LongRunFiles {
  std::filesystem::path folder;
  std::filesystem::path options{folder / "options"};
  std::filesystem::path log{folder / "log.jsonl"};
  // RunWatcher writes the time and the memory that the run has used to this file.
  std::filesystem::path usage{folder / "memory.json"};
  std::filesystem::path output{folder / "output"};
  std::filesystem::path result{folder / "result.json"};
  std::filesystem::path receipt{folder / "receipt"};
  std::filesystem::path checkpoints{folder / "checkpoints"};
};

// Returns the lines of the log of train, one for each step, in the order of steps. If a step ran
// twice, because the run was interrupted, returns its last line. Leaves out an incomplete line.
std::vector<Fields> logged_steps(const std::filesystem::path& log);

}  // namespace fsdp
