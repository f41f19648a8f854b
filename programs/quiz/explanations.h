#pragma once

#include <quiz/quiz.h>

#include <string>

namespace fsdp {

// Each of these functions returns the text, for the instructor's answer sheet, that explains how
// the answer to one of the questions of scale is found. Each line of the text is a paragraph. Its
// numbers come from the same plans as the answer.
std::string explain_most_ranks(const Question& question, const nlohmann::json& answers);
std::string explain_fewest_rows(const Question& question, const nlohmann::json& answers);
std::string explain_fastest_strategy(const Question& question, const nlohmann::json& answers);
std::string explain_checkpoint_time(const Question& question, const nlohmann::json& answers);

}  // namespace fsdp
