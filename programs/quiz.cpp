#include <ATen/Parallel.h>
#include <base/plain_error.h>
#include <base/whole_file.h>
#include <command_line/command_line.h>
#include <memory/counting_allocator.h>
#include <quiz/quiz.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <regex>
#include <set>

namespace fsdp {
namespace {

namespace files = std::filesystem;

struct QuizSettings {
  std::string student, term, answers, out;
  std::vector<std::string> grade;
  bool explain{};
};

QuizSettings parse(int argc, char** argv) {
  QuizSettings settings;
  CLI::App app(
      "Writes a student's questions about bytes and times of runs, prints which answers are right, "
      "or grades the answers of a class.",
      "fsdp quiz");
  app.add_option("--student", settings.student, "the student's name: letters, digits and ._@-");
  app.add_option("--term", settings.term, "a word for the term; another word draws other settings");
  app.add_option("--out", settings.out,
                 "write the questions to this new file, not to the terminal");
  app.add_option("--answers", settings.answers, "print which answers in this file are right");
  app.add_flag("--explain", settings.explain,
               "print the right answers, and how those of the questions of scale are found");
  app.add_option("--grade", settings.grade, "print the points of these files, or folders of files");
  parse_command_line(app, {argv + 1, argv + argc}, [&] {
    if (settings.student.empty() == settings.grade.empty())
      throw UsageError("give either --student ID or --grade FOLDER");
    for (const std::string& word : {settings.student, settings.term})
      if (!std::regex_match(word, std::regex("[A-Za-z0-9._@-]{0,64}")))
        throw UsageError("--student and --term: each has at most 64 letters, digits and ._@-");
    if (settings.explain && (settings.student.empty() || !settings.answers.empty()))
      throw UsageError("--explain: needs --student, without --answers");
    std::error_code unknown;
    if (!settings.out.empty() && files::exists(settings.out, unknown))
      throw UsageError("--out " + settings.out + ": is there already; name a new file");
    if (!settings.out.empty())
      check_output("--out", settings.out, reason_not_to_write(settings.out));
    if (!settings.answers.empty()) {
      const std::string reason = reason_not_to_read(settings.answers);
      if (!reason.empty()) throw UsageError("--answers " + settings.answers + ": " + reason);
    }
    for (const std::string& path : settings.grade)
      if (!files::exists(path, unknown)) throw UsageError("--grade " + path + ": no such file");
  });
  return settings;
}

void require_equal(const std::string& path, const std::string& what, const std::string& in_file,
                   const std::string& given) {
  if (in_file != given)
    throw std::runtime_error(path + ": is of " + what + " '" + in_file + "', not '" + given + "'");
}

int grade(const QuizSettings& settings) {
  std::set<std::string> paths, students;
  for (const std::string& given : settings.grade) {
    if (!files::is_directory(given)) paths.insert(given);
    if (!files::is_directory(given)) continue;
    for (const auto& file : files::directory_iterator(given))
      paths.insert(file.path());
  }
  int status = 0;
  std::puts("student, points of each question, and their sum");
  for (const std::string& path : paths) {
    try {
      const Answers answers = read_answers(path);
      require_equal(path, "term", answers.at("term"), settings.term);
      const std::string& student = answers.at("student");
      if (!students.insert(student).second)
        throw std::runtime_error(path + ": a file before it is of student '" + student + "' too");
      std::fputs(row_of(student, marks_of(answers)).c_str(), stdout);
    } catch (const std::runtime_error& error) {
      std::printf("%s\n", plain_text(error).c_str());
      status = 1;
    }
  }
  return status;
}

// Returns the text that ./fsdp quiz prints for a student: the questions; with --answers, which
// answers are right; with --explain, the answer sheet.
std::string text_for(const QuizSettings& settings) {
  if (settings.explain) return answer_sheet_of(settings.student, settings.term);
  if (settings.answers.empty()) return template_of(settings.student, settings.term);
  const Answers answers = read_answers(settings.answers);
  require_equal(settings.answers, "student", answers.at("student"), settings.student);
  require_equal(settings.answers, "term", answers.at("term"), settings.term);
  return text_of(marks_of(answers));
}

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  return fsdp::run_program("fsdp quiz", [&] {
    const auto settings = fsdp::parse(argc, argv);
    fsdp::counting_allocator::install();
    at::set_num_threads(1);
    if (!settings.grade.empty()) return fsdp::grade(settings);
    const std::string text = fsdp::text_for(settings);
    if (settings.out.empty()) std::fputs(text.c_str(), stdout);
    if (!settings.out.empty()) fsdp::write_whole_file(settings.out, text);
    return 0;
  });
}
