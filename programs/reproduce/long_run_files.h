#pragma once

#include <reproduce/train_result.h>

#include <filesystem>
#include <vector>

namespace fsdp {

// The files of a long run in its folder.
struct LongRunFiles {
  std::filesystem::path folder;
  std::filesystem::path options{folder / "options"};
  std::filesystem::path log{folder / "log.jsonl"};
  std::filesystem::path usage{folder / "memory.json"};  // what RunWatcher has measured
  std::filesystem::path output{folder / "output"};
  std::filesystem::path result{folder / "result.json"};
  std::filesystem::path receipt{folder / "receipt"};
  std::filesystem::path checkpoints{folder / "checkpoints"};
};

// Returns the logged lines in the order of steps. If a step ran twice, because the run was
// interrupted, its last line counts. An incomplete line is left out.
std::vector<Fields> logged_steps(const std::filesystem::path& log);

}  // namespace fsdp
