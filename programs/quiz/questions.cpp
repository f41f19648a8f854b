#include <digest/sha256.h>
#include <quiz/row.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <regex>
#include <span>
#include <sstream>

namespace fsdp {
namespace {

// Splits `options` into words, and replaces each "{a,b}" by one of its values, which the SHA-256 of
// `seed` selects.
std::vector<std::string> drawn(std::string options, const std::string& seed) {
  Sha256 digest;
  digest.update(std::as_bytes(std::span(seed)));
  const std::string digits = digest.hex();
  size_t at = 0;
  for (size_t begin = 0; (begin = options.find('{', begin)) != std::string::npos; at += 4) {
    const size_t end = options.find('}', begin);
    std::vector<std::string> choices;
    std::istringstream list(options.substr(begin + 1, end - begin - 1));
    for (std::string one; std::getline(list, one, ',');)
      choices.push_back(one);
    const size_t number = std::stoul(digits.substr(at, 4), nullptr, 16);
    options.replace(begin, end + 1 - begin, choices[number % choices.size()]);
  }
  std::istringstream words(options);
  return {std::istream_iterator<std::string>(words), {}};
}

// Returns the question of the row, with the settings that the SHA-256 of `seed` selects.
Question question_of(const Row& row, const std::string& seed) {
  Question question{row.text, drawn(row.options, seed), 0, row.fields, row.solve, row.explain};
  std::vector<std::string>& options = question.options;
  const auto amount = std::find_if(options.begin(), options.end(),
                                   [](const std::string& word) { return word[0] == '@'; });
  if (amount == options.end()) return question;
  question.amount = std::stod(amount->substr(1));
  question.text = std::regex_replace(row.text, std::regex("@"), amount->substr(1));
  options.erase(amount);
  return question;
}

}  // namespace

std::vector<Question> questions_of(const std::string& student, const std::string& term) {
  std::vector<Question> questions;
  for (const auto& rows : {accounting_rows(), scale_rows()})
    for (const Row& row : rows)
      questions.push_back(
          question_of(row, student + '\n' + term + '\n' + std::to_string(questions.size() + 1)));
  return questions;
}

nlohmann::json answers_of(const Question& question) {
  return question.solve(question);
}

bool is_right(const std::string& given, const nlohmann::json& answer) {
  if (answer.is_string()) return given == answer.get<std::string>();
  std::string digits = given;
  std::erase_if(digits, [](char c) { return c == ' ' || c == ',' || c == '_'; });
  if (answer.is_number_integer()) return digits == answer.dump();
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end), wanted = answer;
  return *end == 0 && std::abs(value - wanted) <= 0.01 * wanted;
}

}  // namespace fsdp
