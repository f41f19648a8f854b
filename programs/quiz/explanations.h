#pragma once

#include <quiz/quiz.h>

#include <string>

namespace fsdp {

// These functions return how the answers to the questions of scale are found, for the answer sheet.
// Each line of an explanation is a paragraph. Its numbers come from the same plans as the answer.
std::string explain_most_ranks(const Question& question, const nlohmann::json& answers);
std::string explain_fewest_rows(const Question& question, const nlohmann::json& answers);
std::string explain_fastest_strategy(const Question& question, const nlohmann::json& answers);
std::string explain_checkpoint_time(const Question& question, const nlohmann::json& answers);

}  // namespace fsdp
