#include <gtest/gtest.h>
#include <prediction/link_report.h>

namespace fsdp {
namespace {

Event span(EventKind kind, const std::string& name, int64_t begin, int64_t end,
           uint64_t sequence = 0) {
  Event event;
  event.kind = kind;
  event.call.unit = UnitName(name);
  event.begin = begin;
  event.end = end;
  event.call.sequence = sequence;
  return event;
}

constexpr int64_t kSecond = 1'000'000'000;

TEST(ComputeTimes, are_spans_without_the_waits_and_inner_modules_in_them) {
  const std::vector<Event> events{
      span(EventKind::forward, "root", 1, 2 * kSecond),  // of another step
      span(EventKind::step, "", 10 * kSecond, 60 * kSecond, 7),
      span(EventKind::forward, "root", 10 * kSecond, 30 * kSecond),
      span(EventKind::wait, "root", 10 * kSecond, 13 * kSecond),
      span(EventKind::forward, "layers.0", 14 * kSecond, 22 * kSecond),
      span(EventKind::flight, "layers.0", 14 * kSecond, 16 * kSecond),
      span(EventKind::wait, "layers.0", 14 * kSecond, 16 * kSecond),
      span(EventKind::forward, "layers.1", 22 * kSecond, 23 * kSecond),
      span(EventKind::wait, "metrics", 31 * kSecond, 32 * kSecond),
      span(EventKind::backward, "root", 40 * kSecond, 55 * kSecond),
      span(EventKind::backward, "layers.1", 41 * kSecond, 51 * kSecond),
  };
  const auto times = compute_times(events, events[1]);
  ASSERT_EQ(times.size(), 5);
  EXPECT_EQ(times[0].unit, "root");
  EXPECT_DOUBLE_EQ(times[0].seconds, 20 - 3 - 8 - 1);
  EXPECT_EQ(times[1].unit, "layers.0");
  EXPECT_DOUBLE_EQ(times[1].seconds, 6);
  EXPECT_EQ(times[2].unit, "layers.1");
  EXPECT_DOUBLE_EQ(times[2].seconds, 1);
  EXPECT_EQ(times[3].kind, EventKind::backward);
  EXPECT_DOUBLE_EQ(times[3].seconds, 15 - 10);
  EXPECT_DOUBLE_EQ(times[4].seconds, 10);
}

TEST(ComputeTimes, count_a_wait_within_a_wait_once) {
  const std::vector<Event> events{
      span(EventKind::step, "", 1, 10 * kSecond),
      span(EventKind::forward, "root", 1 * kSecond, 9 * kSecond),
      span(EventKind::wait, "a", 2 * kSecond, 6 * kSecond),
      span(EventKind::wait, "b", 3 * kSecond, 4 * kSecond),
  };
  const auto times = compute_times(events, events[0]);
  ASSERT_EQ(times.size(), 1);
  EXPECT_DOUBLE_EQ(times[0].seconds, 4);
}

}  // namespace
}  // namespace fsdp
