#include <gtest/gtest.h>
#include <prediction/link_report.h>

#include <string>
#include <vector>

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

TEST(ComputeTime, the_compute_time_of_a_unit_excludes_waits_and_the_modules_inside) {
  const std::vector<Event> events{
      // This forward ends before the step begins, so it must not count.
      span(EventKind::forward, "root", 1, 2 * kSecond),
      span(EventKind::step, "", 10 * kSecond, 60 * kSecond, 7),
      span(EventKind::forward, "root", 10 * kSecond, 30 * kSecond),
      span(EventKind::wait, "root", 10 * kSecond, 13 * kSecond),
      span(EventKind::forward, "layers.0", 14 * kSecond, 22 * kSecond),
      span(EventKind::flight, "layers.0", 14 * kSecond, 16 * kSecond),
      span(EventKind::wait, "layers.0", 14 * kSecond, 16 * kSecond),
      span(EventKind::wait, "a wait in it", 15 * kSecond, 16 * kSecond),
      span(EventKind::forward, "layers.1", 22 * kSecond, 23 * kSecond),
      span(EventKind::wait, "metrics", 31 * kSecond, 32 * kSecond),
      span(EventKind::backward, "root", 40 * kSecond, 55 * kSecond),
      span(EventKind::backward, "layers.1", 41 * kSecond, 51 * kSecond),
  };
  const auto times = compute_times(events, events[1]);
  const std::vector<std::pair<std::string, double>> expected{{"forward root", 20 - 3 - 8 - 1},
                                                             {"forward layers.0", 6},
                                                             {"forward layers.1", 1},
                                                             {"backward root", 15 - 10},
                                                             {"backward layers.1", 10}};
  ASSERT_EQ(times.size(), expected.size());
  for (size_t i = 0; i < times.size(); ++i) {
    const std::string kind = times[i].kind == EventKind::forward ? "forward " : "backward ";
    EXPECT_EQ(kind + times[i].unit, expected[i].first);
    EXPECT_DOUBLE_EQ(times[i].seconds, expected[i].second) << times[i].unit;
  }
}

}  // namespace
}  // namespace fsdp
