#pragma once

#include <quiz/quiz.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp {

// A question of the quiz before the settings for a student are drawn.
struct Row {
  // The text of the question. "@" in it stands for the amount that is drawn for each student.
  std::string text;
  // Options of ./fsdp plan; for each "{a,b}" one value is drawn, and a word such as "@2.5" sets the
  // amount.
  std::string options;
  std::map<std::string, std::string> fields;
  Question::Solve solve{};
  Question::Explain explain{};
};

// Returns the questions about the bytes and the time of one run.
std::vector<Row> accounting_rows();
// Returns the questions of scale: on how many ranks, with how many rows, with which strategy, and
// how long does a checkpoint take?
std::vector<Row> scale_rows();

}  // namespace fsdp
