#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp {

// One question, with the settings of one student.
struct Question {
  using Solve = nlohmann::json (*)(const Question& question);
  using Explain = std::string (*)(const Question& question, const nlohmann::json& answers);

  std::string text;
  std::vector<std::string> options;           // of ./fsdp plan, for the run of the question
  double amount{};                            // the number that was drawn for the text; 0: none
  std::map<std::string, std::string> fields;  // name -> JSON pointer into answers_of()
  Solve solve{};
  Explain explain{};  // returns how the answer is found; null: the question has no explanation
};

// Returns the questions of a student in a term: the accounting questions, then those of scale.
// Every call returns the same ones, because the settings are drawn from the SHA-256 of student,
// term and question number.
std::vector<Question> questions_of(const std::string& student, const std::string& term);

// Returns the right answers, which the code of ./fsdp plan computes. Runs torch operators and needs
// the counting allocator.
nlohmann::json answers_of(const Question& question);

// Returns whether `given` is right: a count must match in every digit, milliseconds and seconds
// within 1 %, a word exactly.
bool is_right(const std::string& given, const nlohmann::json& answer);

// The file of a student's answers: the lines "student: ID" and "term: WORD", then lines such as
// "3.received: 1,234". Key -> value.
using Answers = std::map<std::string, std::string>;
// Reads such a file. Throws std::runtime_error that names the file and the line.
Answers read_answers(const std::string& path);
// Returns the questions with empty answers, for the student to fill in.
std::string template_of(const std::string& student, const std::string& term);
// Returns the questions with the right answers and the explanations, for the instructor. The text
// is a file that read_answers() reads.
std::string answer_sheet_of(const std::string& student, const std::string& term);

// For each question: "right", "wrong", "missing" or "without a sentence" -> names of the fields
// with this mark.
using Marks = std::vector<std::map<std::string, std::vector<std::string>>>;
Marks marks_of(const Answers& answers);

// Returns one line for each question, without the right answers.
std::string text_of(const Marks& marks);
// Returns the points of each question, and their sum: "ada  1.00 0.50 ...  1.50".
std::string row_of(const std::string& student, const Marks& marks);

}  // namespace fsdp
