#include <base/child_program.h>
#include <fcntl.h>
#include <unistd.h>
#include <why/reference_run.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>

namespace fsdp {
namespace {

using namespace std::chrono_literals;

// Runs `command` and records its ranks in `folder`. Its output is discarded. Returns whether it
// succeeded.
bool record(const std::vector<std::string>& command, const std::string& folder) {
  ChildProgram child([&](int) {
    const int nowhere = open("/dev/null", O_RDWR);
    for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
      dup2(nowhere, file);
    unsetenv("FSDP_REPLAY");
    setenv("FSDP_RECORD", folder.c_str(), 1);
    setenv("FSDP_RECORD_PASSED", "1", 1);
    return command;
  });
  return child.end(60s).ok();
}

// Returns the folder of the only recorded test below `folder`; "" if there is none.
std::string recorded_test(const std::string& folder) {
  std::error_code none;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, none))
    if (entry.path().filename() == "command") return entry.path().parent_path();
  return "";
}

}  // namespace

std::optional<Finding> parting_from(const std::string& program, const Question& question,
                                    Investigation& investigation,
                                    const std::vector<std::string>& command) {
  std::vector<std::string> words(command);
  words.front() = program;
  const std::string folder = question.folder + "/reference";
  if (!record(words, folder)) return {};
  const std::string recording = recorded_test(folder) + '/' + std::to_string(question.run) +
                                "/rank-" + std::to_string(question.rank);
  if (!std::filesystem::exists(recording)) return {};
  const StepsOfRank yours = investigation.steps();
  const std::string before = std::getenv("FSDP_REPLAY");
  setenv("FSDP_REPLAY", recording.c_str(), 1);
  const StepsOfRank reference = Investigation(question, words).steps();
  setenv("FSDP_REPLAY", before.c_str(), 1);
  const auto found = find_parting(yours, reference);
  if (!found) return {};
  Finding finding;
  finding.lines = {found->line};
  finding.own = {0};
  finding.because = Finding::Because::parts;
  finding.text = "Then it " + found->yours + "; the reference solution " + found->reference + '.';
  return finding;
}

}  // namespace fsdp
