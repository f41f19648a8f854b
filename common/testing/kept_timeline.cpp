#include <base/whole_file.h>
#include <gtest/gtest.h>
#include <testing/kept_timeline.h>
#include <trace/timeline.h>

#include <algorithm>
#include <cstdlib>

namespace fsdp::kept_timeline {
namespace {

struct Kept {
  std::shared_ptr<EventLog> log;
  bool of_a_failure{};
};

Kept& kept() {
  static Kept of_this_process;
  return of_this_process;
}

}  // namespace

void keep(const std::shared_ptr<EventLog>& log) {
  if (std::getenv("FSDP_TRACE") == nullptr || log == nullptr) return;
  const std::vector<Event> events = log->events(0);
  const bool collective = std::any_of(events.begin(), events.end(), [](const Event& event) {
    return event.kind == EventKind::issue;
  });
  if (collective) kept().log = log;
}

void end_test(const char* suite, const char* test, bool failed) {
  const char* path = std::getenv("FSDP_TRACE");
  if (path == nullptr || kept().log == nullptr || kept().of_a_failure) return;
  const Timeline timeline =
      timeline_of(*kept().log, std::string(suite) + '.' + test, failed ? "the test failed" : "");
  write_whole_file(path, timeline_writer(path)(timeline));
  kept() = {nullptr, failed};
  testing::Test::RecordProperty(kWritten, path);
}

}  // namespace fsdp::kept_timeline
