#include <comm/call.h>
#include <gtest/gtest.h>
#include <trace/event.h>
#include <trace/event_log.h>

namespace fsdp {
namespace {

Event event_of(EventKind kind, const std::string& name) {
  Event event;
  event.kind = kind;
  event.call.unit = UnitName(name);
  return event;
}

TEST(EventLog, a_full_event_log_drops_the_oldest_events_and_counts_them) {
  const auto log = EventLog::create(2, 10);
  for (int i = 0; i < 25; ++i)
    log->add(1, event_of(EventKind::free, std::to_string(i)));
  const auto events = log->events(1);
  ASSERT_EQ(events.size(), 10);
  EXPECT_EQ(events.front().name(), "15");
  EXPECT_EQ(events.back().name(), "24");
  EXPECT_EQ(log->dropped(1), 15);
  EXPECT_TRUE(log->events(0).empty());

  Event late = event_of(EventKind::wait, "late");
  late.end = 1;
  // This call of finish() changes nothing, because the log has dropped event 14.
  log->finish(1, 14, late);
  log->finish(1, 15, late);
  EXPECT_EQ(log->events(1).front().name(), "late");
  EXPECT_EQ(log->events(1).back().name(), "24");
}

}  // namespace
}  // namespace fsdp
