#include <testing/error_text.h>
#include <testing/rank_report.h>
#include <testing/story.h>

#include <algorithm>
#include <csignal>
#include <cstring>

namespace fsdp {
namespace {

// Describes a SIGSEGV at `address`. A tensor without storage begins at address 0, so a small
// address shows which of its elements was used. A large address may come from a variable that no
// longer exists.
std::string crash_text(uintptr_t address) {
  constexpr uintptr_t kNearNull = uintptr_t{1} << 32;
  const std::string gone =
      "an object that no longer exists, such as a local variable that a closure captured by "
      "reference";
  if (address >= kNearNull) return ": it may have used " + gone;
  const std::string text = ": it used address " + std::to_string(address) + ", ";
  const std::string member = "a member of a null pointer or of " + gone;
  if (address % sizeof(float) != 0) return text + member;
  return text + "which is element " + std::to_string(address / sizeof(float)) +
         " of a storage of 0 bytes, such as that of a parameter after reshard(), or " + member;
}

std::string refusal_text(const std::string& function) {
  return ": it called " + function + ", which a task's code may not call; remove the call";
}

std::string ending(const RankReport& report) {
  const RankExit& exit = report.exit;
  if (report.finished) return "reached the end of the test";
  if (exit.signal == SIGALRM) return "was still running at the time limit";
  if (exit.ended_by_launcher) return "was stopped";
  if (exit.signal != 0) {
    return "was killed by signal " + std::to_string(exit.signal) + " (" + strsignal(exit.signal) +
           ")" + report.crash;
  }
  if (!exit.message.empty()) {
    return "threw an exception: " + explained(exit.message);
  }
  return "left by exit(" + std::to_string(exit.exit_code) + ") before the end of the test";
}

std::string name(const RankReport& report) {
  return "rank " + std::to_string(report.exit.rank);
}

// Returns the rank that caused the failure. A rank that left early by exit(0) comes first: the
// launcher counts it as successful, although it may have made the other ranks fail.
const RankReport* cause(const std::vector<RankReport>& ranks) {
  const RankReport* found = nullptr;
  for (const RankReport& report : ranks) {
    if (report.exit.ok() && !report.finished) return &report;
    if (report.first_to_fail) found = &report;
  }
  return found;
}

std::string progress(const RankReport& report) {
  std::string text;
  // If the exit message has several lines, as that of a failed collective, the last collective and
  // the last observation get a line each.
  const char* separator = report.exit.message.find('\n') != std::string::npos ? "\n" : "; ";
  if (!report.exit.last_call.empty())
    text += separator + ("last collective " + report.exit.last_call);
  if (!report.latest.empty()) text += separator + ("last observation \"" + report.latest + "\"");
  return text;
}

}  // namespace

nlohmann::json observation_frame(const std::string& name, const nlohmann::json& value,
                                 uint64_t events) {
  return {{"kind", "observation"}, {"name", name}, {"value", value}, {"events", events}};
}

nlohmann::json finished_frame() {
  return {{"kind", "finished"}};
}

RankReport read_report(const RankExit& exit, bool first_to_fail, const Channel& channel,
                       const std::vector<Event>& events, const Crash* crash) {
  RankReport report;
  report.exit = exit;
  report.first_to_fail = first_to_fail;
  if (crash != nullptr && crash->seen) report.crash = crash_text(crash->address);
  if (crash != nullptr && crash->refused[0] != 0)
    report.crash = refusal_text({crash->refused, strnlen(crash->refused, sizeof crash->refused)});
  auto event = events.begin();
  const auto take_events = [&](uint64_t until) {
    for (; event != events.end() && event < events.begin() + static_cast<int64_t>(until); ++event) {
      if (const std::string step = step_of(*event); !step.empty()) report.steps.push_back(step);
    }
  };
  // TestRank sends neither a frame after the one of finished_frame() nor two observations of one
  // name. Graded code that has found the channel's file could send such frames.
  const auto stray = [&](const std::string& what) {
    report.not_its_own += name(report) + " " + what + ": it did not report this itself\n";
  };
  for (nlohmann::json& frame : channel.frames()) {
    const std::string& kind = frame["kind"].get_ref<const std::string&>();
    if (report.finished) stray("reported after the end of the test");
    if (kind == "observation") {
      report.latest = frame["name"];
      if (report.observations.contains(report.latest))
        stray("observed \"" + report.latest + "\" twice");
      take_events(frame["events"]);
      report.steps.push_back("observes \"" + report.latest + '"');
      report.observed_after[report.latest] = report.steps.size();
      report.observations[report.latest] = std::move(frame["value"]);
    } else {
      report.finished = true;
    }
  }
  take_events(events.size());
  return report;
}

int rank_that_failed(const std::vector<RankReport>& ranks) {
  const RankReport* const first = cause(ranks);
  return first == nullptr ? -1 : first->exit.rank;
}

std::string describe_failure(const std::vector<RankReport>& ranks) {
  std::string text;
  for (const RankReport& report : ranks)
    text += report.not_its_own;
  const RankReport* first = cause(ranks);
  if (first == nullptr) return text;
  text += name(*first) + " " + ending(*first) + progress(*first) + "\n";
  for (const RankReport& report : ranks) {
    if (&report == first) continue;
    text += "  " + name(report) + " " + ending(report) + progress(report) + "\n";
  }
  return text;
}

}  // namespace fsdp
