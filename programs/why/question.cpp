#include <base/whole_file.h>
#include <why/question.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <vector>

namespace fsdp {
namespace {

namespace files = std::filesystem;

Question read_question(const files::path& file) {
  const auto wrong = nlohmann::json::parse(content_of(file), nullptr, /*allow_exceptions=*/false);
  if (!wrong.is_object())
    throw std::runtime_error("why: " + file.string() + " is not a file that check --record writes");
  const auto text = [&](const char* key) {
    const nlohmann::json value = wrong.value(key, nlohmann::json(""));
    return value.is_string() ? value.get<std::string>() : value.dump();
  };
  Question question;
  const files::path folder = file.parent_path();
  question.folder = folder;
  question.test = text("test");
  question.compares_runs = !question.test.empty();
  if (!question.compares_runs)
    question.test = folder.parent_path().filename().string() + '/' + folder.filename().string();
  question.run = wrong.value("run", 0);
  question.rank = wrong.value("rank", 0);
  question.name = text("name");
  question.text = text("text");
  question.element = wrong.value("element", -1);
  question.right = wrong.value("right", -1);
  question.place = text("place");
  question.is = text("is");
  question.expected = text("expected");
  question.of_microbatches = wrong.value("microbatches", std::vector<double>());
  question.others = wrong.value("others", std::vector<double>());
  question.call = wrong.value("call", -1);
  question.remark = text("remark");
  return question;
}

}  // namespace

int Question::task() const {
  const bool names_task = test.size() > 1 && test[0] == 'T' && std::isdigit(test[1]) != 0;
  return names_task ? test[1] - '0' : 0;
}

std::string Question::names() const {
  return compares_runs ? name : test + ' ' + name;
}

Question choose_question(const std::string& folder) {
  std::vector<files::path> found;
  if (files::exists(folder)) {
    for (const auto& entry : files::recursive_directory_iterator(folder))
      if (entry.path().filename() == "wrong") found.push_back(entry.path());
  }
  std::ranges::sort(found);
  std::optional<Question> other;
  for (const files::path& file : found) {
    Question question = read_question(file);
    if (question.element >= 0) return question;
    if (!other) other = question;
  }
  if (!other)
    throw std::runtime_error(
        "why: no failed test has compared what its ranks observed; read the "
        "text of ./fsdp check");
  return *other;
}

}  // namespace fsdp
