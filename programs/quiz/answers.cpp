#include <base/text.h>
#include <quiz/quiz.h>

#include <cstdio>
#include <fstream>
#include <regex>
#include <stdexcept>

namespace fsdp {
namespace {

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

std::string key(size_t number, const std::string& field) {
  return std::to_string(number) + '.' + field;
}

// Puts "# " before each line of `text`, and breaks lines so that they have at most 99 columns.
std::string commented(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  return "# " + std::regex_replace(wrap(text, 97), std::regex("\n"), "\n# ") + '\n';
}

std::string head_of(const std::string& student, const std::string& term) {
  return commented(
             "Bytes and other counts are exact, and those of rank 0 from the second step on. "
             "Milliseconds and seconds may be 1 % off. Flops are those of matrix products and of "
             "attention: forward has for each token 2 for each element of the matrices of the "
             "blocks and of the head (not of embeddings that are looked up) and, in each block, "
             "4 x seq x d_model; backward has 4 and 10, and for a checkpointed block its forward "
             "again. A collective takes the time of the alpha-beta model (GLOSSARY, 'link'), an "
             "all-reduce with twice the latency. Units are padded to a multiple of "
             "16 W parameters. The sizes of the models are in common/nn/models.cpp. After "
             "'because' write one sentence that explains the answer.") +
         "student: " + student + "\nterm: " + term + '\n';
}

// Returns the question and the options of its run, in lines that begin with "#".
std::string text_of(size_t number, const Question& question) {
  std::string options;
  for (const std::string& option : question.options)
    options += ' ' + option;
  return '\n' + commented(std::to_string(number) + ". " + question.text) + '#' +
         std::regex_replace(wrap(options, 97), std::regex("\n"), "\n#   ") + '\n';
}

std::string printed(const nlohmann::json& answer) {
  if (answer.is_string()) return answer.get<std::string>();
  if (answer.is_number_integer()) return answer.dump();
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.6g", answer.get<double>());
  return digits;
}

double points_of(const Marks::value_type& fields) {
  size_t right = 0, all = 0;
  for (const auto& [mark, names] : fields) {
    all += names.size();
    if (mark == "right") right += names.size();
  }
  return static_cast<double>(right) / static_cast<double>(all);
}

}  // namespace

Answers read_answers(const std::string& path) {
  std::ifstream lines(path);
  if (!lines) throw std::runtime_error(path + ": can't be read");
  Answers answers;
  int number = 1;
  for (std::string line; std::getline(lines, line); ++number) {
    line = trimmed(line);
    const size_t colon = line.find(':');
    if (line.empty() || line[0] == '#') continue;
    const std::string where = path + ", line " + std::to_string(number) + ": ";
    if (colon == std::string::npos) throw std::runtime_error(where + "no colon: " + one_line(line));
    if (!answers.emplace(trimmed(line.substr(0, colon)), trimmed(line.substr(colon + 1))).second)
      throw std::runtime_error(where + "a second answer: " + one_line(line));
  }
  if (!answers.contains("student") || !answers.contains("term"))
    throw std::runtime_error(path + ": has no lines 'student: ID' and 'term: WORD'");
  return answers;
}

std::string template_of(const std::string& student, const std::string& term) {
  std::string text = head_of(student, term);
  size_t number = 0;
  for (const Question& question : questions_of(student, term)) {
    text += text_of(++number, question);
    for (const auto& [name, place] : question.fields)
      text += key(number, name) + ":\n";
    text += key(number, "because") + ":\n";
  }
  return text;
}

std::string answer_sheet_of(const std::string& student, const std::string& term) {
  std::string text = head_of(student, term);
  size_t number = 0;
  for (const Question& question : questions_of(student, term)) {
    text += text_of(++number, question);
    const nlohmann::json answers = answers_of(question);
    for (const auto& [name, place] : question.fields)
      text += key(number, name) + ": " + printed(answers.at(nlohmann::json::json_pointer(place))) +
              '\n';
    if (question.explain != nullptr) text += commented(question.explain(question, answers));
  }
  return text;
}

Marks marks_of(const Answers& answers) {
  Marks marks;
  for (const Question& question : questions_of(answers.at("student"), answers.at("term"))) {
    auto& fields = marks.emplace_back();
    const nlohmann::json known = answers_of(question);
    const auto given = [&](const std::string& name) {
      const auto found = answers.find(key(marks.size(), name));
      return found == answers.end() ? "" : found->second;
    };
    for (const auto& [name, place] : question.fields) {
      const bool right = is_right(given(name), known.at(nlohmann::json::json_pointer(place)));
      fields[given(name).empty() ? "missing" : right ? "right" : "wrong"].push_back(name);
    }
    if (given("because").empty()) fields["without a sentence"] = {};
  }
  return marks;
}

std::string text_of(const Marks& marks) {
  std::string text;
  for (size_t i = 0; i < marks.size(); ++i) {
    char points[32];
    std::snprintf(points, sizeof points, "%3zu  %.2f ", i + 1, points_of(marks[i]));
    text += points;
    for (const auto& [mark, names] : marks[i]) {
      text += ' ' + mark + (names.empty() ? "" : ":");
      for (const std::string& name : names)
        text += ' ' + name;
      text += ';';
    }
    text.back() = '\n';
  }
  return text;
}

std::string row_of(const std::string& student, const Marks& marks) {
  char cell[32];
  std::snprintf(cell, sizeof cell, "%-16.16s", student.c_str());
  std::string row = cell;
  double sum = 0;
  for (const auto& fields : marks) {
    std::snprintf(cell, sizeof cell, " %4.2f", points_of(fields));
    row += cell;
    sum += points_of(fields);
  }
  std::snprintf(cell, sizeof cell, " %6.2f\n", sum);
  return row + cell;
}

}  // namespace fsdp
