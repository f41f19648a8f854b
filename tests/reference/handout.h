#pragma once

#include <report/telemetry.h>
#include <testing/multi_rank.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

// These functions compare the numbers in the handout of a task with a run. A test quotes a sentence
// of the handout, with the values of the run in place of the numbers.
namespace fsdp {

using Values = std::map<std::string, nlohmann::json>;

// Returns all values that rank 0 of the run has observed, by the names of the observations.
inline Values observed_by(const RankRun& run) {
  Values values;
  for (const std::string& name : run.names(0))
    values[name] = run.at(0, name);
  return values;
}

inline Values observed_on(int world_size, const RankBody& body, const char* file = __builtin_FILE(),
                          int line = __builtin_LINE()) {
  return observed_by(run_ranks(world_size, body, {}, file, line));
}

// Returns the text of the handout (README.md) of a task, in which each sequence of white space is
// one blank.
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

// Returns `value` as a text with `digits` digits after the decimal point, such as "3.54".
inline std::string rounded(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

// Returns `words` with each {name} replaced by its value: a text, or a whole number with commas.
inline std::string filled(std::string words, const Values& values) {
  for (const auto& [name, value] : values) {
    const std::string place = "{" + name + "}";
    const std::string text =
        value.is_string() ? value.get<std::string>() : with_commas(value.get<int64_t>());
    for (size_t at = 0; (at = words.find(place, at)) != std::string::npos; at += text.size())
      words.replace(at, place.size(), text);
  }
  return words;
}

// Fails unless the handout of the task contains `words` after each {name} in them was replaced by
// its value.
inline void expect_said(int task, const Values& values, const std::string& words,
                        const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const std::string said = filled(words, values);
  if (handout(task).find(said) != std::string::npos) return;
  ADD_FAILURE_AT(file, line) << "the handout of task " << task
                             << " does not contain this text, which has the values of a run:\n  "
                             << said;
}

}  // namespace fsdp
