#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp {

// A question of the quiz, with the settings that were drawn for one student.
struct Question {
  using Solve = nlohmann::json (*)(const Question& question);
  using Explain = std::string (*)(const Question& question, const nlohmann::json& answers);

  std::string text;
  // Options of ./fsdp plan for the run that the question is about.
  std::vector<std::string> options;
  double amount{};  // the number in `text` that was drawn for the student; 0: no number was drawn
  // Name of an answer -> the place of the right answer in the JSON that answers_of() returns, as a
  // JSON pointer.
  std::map<std::string, std::string> fields;
  Solve solve{};
  // A function that returns a text on how the answers are found; null: the question has no
  // explanation.
  Explain explain{};
};

// Returns the questions of a student in a term: first those of accounting_rows(), then those of
// scale_rows(). For the same student and term, every call returns the same questions, because the
// settings are drawn from the SHA-256 of student, term and question number.
std::vector<Question> questions_of(const std::string& student, const std::string& term);

// Returns the right answers, which the code of ./fsdp plan computes. Requires: the counting
// allocator is installed, because the code runs torch operators.
nlohmann::json answers_of(const Question& question);

// Returns whether `given`, a student's answer, is right: a count must match in every digit, a word
// exactly, and a time in milliseconds or seconds within 1 %.
bool is_right(const std::string& given, const nlohmann::json& answer);

// The answers in a student's file, key -> value. The file has the lines "student: ID" and "term:
// WORD", then lines such as "3.received: 1,234".
using Answers = std::map<std::string, std::string>;
// Reads a file with a student's answers. Throws std::runtime_error that names the file and the
// line.
Answers read_answers(const std::string& path);
// Returns the text of a file that the student fills in: the questions with empty answers.
std::string template_of(const std::string& student, const std::string& term);
// Returns, for the instructor, the questions with the right answers and the explanations. The text
// has the format of a student's file, so read_answers() can read it.
std::string answer_sheet_of(const std::string& student, const std::string& term);

// Element i is about question i + 1: it maps each mark, "right", "wrong" or "missing", to the names
// of the question's answers that have this mark. It also has the key "without a sentence" if the
// student has not written the sentence that gives the reason.
using Marks = std::vector<std::map<std::string, std::vector<std::string>>>;
Marks marks_of(const Answers& answers);

// Returns one line for each question, with its points and marks, but without the right answers.
std::string text_of(const Marks& marks);
// Returns a line with the student, the points of each question, and their sum:
// "ada  1.00 0.50 ...  1.50".
std::string row_of(const std::string& student, const Marks& marks);

}  // namespace fsdp
