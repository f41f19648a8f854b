#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp {

// One accounting question, with the settings of one student.
struct Question {
  std::string text;
  std::vector<std::string> options;  // of ./fsdp train and ./fsdp plan: the run it is about
  std::map<std::string, std::string> fields;  // name -> where answers_of() has its answer
};

// The questions of a student in a term, always the same: their settings are drawn from the SHA-256
// of student, term and number.
std::vector<Question> questions_of(const std::string& student, const std::string& term);

// What ./fsdp plan knows of the question's run, as the last line of the JSON file of ./fsdp train
// has it. Runs torch operators, and needs the counting allocator.
nlohmann::json answers_of(const Question& question);

// Whether `given` is that number to the last digit, a number of milliseconds within 1 %, or that
// word.
bool is_right(const std::string& given, const nlohmann::json& answer);

// What a student answers: lines "3.received: 1,234", after "student: ID" and "term: WORD".
using Answers = std::map<std::string, std::string>;
Answers read_answers(const std::string& path);  // throws std::runtime_error, which names the line
std::string template_of(const std::string& student, const std::string& term);  // to be filled in

// By question: the names of fields, by "right", "wrong" and "missing".
using Marks = std::vector<std::map<std::string, std::vector<std::string>>>;
Marks marks_of(const Answers& answers);

// One line for each question, without answers.
std::string text_of(const Marks& marks);
// "ada  1.00 0.50 ...  1.50": the points of each question, and their sum.
std::string row_of(const std::string& student, const Marks& marks);

}  // namespace fsdp
