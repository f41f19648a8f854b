#pragma once

#include <reproduce/train_result.h>

#include <filesystem>
#include <vector>

namespace fsdp {

// What a long run keeps in its folder.
struct LongRunFiles {
  std::filesystem::path folder;
  std::filesystem::path options{folder / "options"};
  std::filesystem::path log{folder / "log.jsonl"};
  std::filesystem::path usage{folder / "memory.json"};  // what RunWatcher has measured
  std::filesystem::path output{folder / "output"};
  std::filesystem::path result{folder / "result.json"};
  std::filesystem::path checkpoints{folder / "checkpoints"};
};

// The lines that the run has logged. Of a step that ran twice, because the run was interrupted, the
// last line counts. A line that is cut off is left out.
std::vector<Fields> logged_steps(const std::filesystem::path& log);

}  // namespace fsdp
