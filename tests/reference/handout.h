#pragma once

#include <gtest/gtest.h>
#include <report/telemetry.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

// For tests that compare the numbers of a handout with a run: a test puts what the run has shown
// into the words of the handout, and asks whether they stand there.
namespace fsdp {

// The handout of a task, with every run of white space as one blank.
inline std::string handout(int task) {
  const auto tasks = std::filesystem::path(__FILE__).parent_path() / "../../tasks";
  std::string text;
  for (const auto& folder : std::filesystem::directory_iterator(tasks)) {
    if (folder.path().filename().string().rfind("task" + std::to_string(task) + "_", 0) != 0)
      continue;
    std::ifstream file(folder.path() / "README.md");
    for (std::string word; file >> word;)
      text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

inline void expect_said(int task, const std::string& words, const char* file = __builtin_FILE(),
                        int line = __builtin_LINE()) {
  if (handout(task).find(words) != std::string::npos) return;
  ADD_FAILURE_AT(file, line) << "a run shows what the handout of task " << task
                             << " does not say:\n  " << words;
}

// "3.54"
inline std::string rounded(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

inline std::string gigabytes(double bytes, int digits = 1) {
  return rounded(bytes / 1e9, digits);
}

}  // namespace fsdp
