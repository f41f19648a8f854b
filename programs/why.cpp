// why --choose DIR: prints the folder, the rank and the run of the recording that ./fsdp why should
// explain.
// why [--verbose] [--reference FILE] FOLDER PROGRAM ARGUMENT...: explains the wrong observation of
// the recording in FOLDER. It replays the rank with the command PROGRAM ARGUMENT...; ./fsdp replay
// starts it in this form and sets its environment. FILE: the same test program with the reference
// solution; why runs the test with it too, and says where the two runs part.
#include <why/answer.h>
#include <why/investigation.h>
#include <why/reference_run.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace {

int explain(std::vector<std::string> words) {
  const bool verbose = words.front() == "--verbose";
  if (verbose) words.erase(words.begin());
  std::string reference;
  if (words.front() == "--reference") {
    reference = words.at(1);
    words.erase(words.begin(), words.begin() + 2);
  }
  const fsdp::Question question = fsdp::choose_question(words.at(0));
  words.erase(words.begin());
  fsdp::Investigation investigation(question, words);
  auto findings = investigation.find();
  if (!reference.empty())
    if (const auto parts = fsdp::parting_from(reference, question, investigation, words))
      findings.insert(findings.begin(), *parts);
  std::fputs(fsdp::answer(question, findings, verbose).c_str(), stdout);
  return 0;
}

int choose(const std::string& folder) {
  const fsdp::Question question = fsdp::choose_question(folder);
  std::printf("%s\n%d\n%d\n", question.folder.c_str(), question.rank, question.run);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 2) {
    std::fputs("fsdp why: is started by ./fsdp why\n", stderr);
    return 2;
  }
  try {
    return words.front() == "--choose" ? choose(words[1]) : explain(words);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fsdp %s\n", error.what());
    return 1;
  }
}
