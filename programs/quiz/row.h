#pragma once

#include <quiz/quiz.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp {

// A question before its settings are drawn.
struct Row {
  std::string text;     // "@" stands for the amount
  std::string options;  // of each "{a,b}" one value is drawn; a word such as "@2.5" is the amount
  std::map<std::string, std::string> fields;
  Question::Solve solve{};
  Question::Explain explain{};
};

// The questions about the bytes and the time of one run.
std::vector<Row> accounting_rows();
// The questions of scale: up to which size, with which strategy, how long.
std::vector<Row> scale_rows();

}  // namespace fsdp
