#include <comm/launcher.h>
#include <gtest/gtest.h>
#include <memory/counting_allocator.h>
#include <signal.h>
#include <trace/recorder.h>

namespace fsdp {
namespace {

// Each look at it is a nanosecond later.
class CountingClock final : public Clock {
 public:
  int64_t now() override { return ++now_; }
  void sleep_until(int64_t) override {}

 private:
  int64_t now_{};
};

Event event_of(EventKind kind, const std::string& name) {
  Event event;
  event.kind = kind;
  event.set_name(name);
  return event;
}

// Runs `body` as one rank with a recorder, and reads the log afterwards.
template <class Body>
std::vector<Event> recorded(Body body) {
  const auto log = EventLog::create(1);
  launch(1, [&](const RankContext&) {
    counting_allocator::install();
    Recorder recorder(log, 0, std::make_shared<CountingClock>());
    body();
    return 0;
  });
  return log->events(0);
}

TEST(EventLogs, AreReadByTheProcessThatForkedTheRanks) {
  const auto log = EventLog::create(3);
  const auto result = launch(3, [&](const RankContext& context) {
    for (int i = 0; i <= context.rank; ++i) {
      log->add(context.rank, event_of(EventKind::free, "unit" + std::to_string(i)));
    }
    return 0;
  });
  ASSERT_TRUE(result.ok());
  for (int rank = 0; rank < 3; ++rank) {
    const auto events = log->events(rank);
    ASSERT_EQ(events.size(), rank + 1);
    EXPECT_EQ(events.back().name(), "unit" + std::to_string(rank));
    EXPECT_EQ(log->dropped(rank), 0);
  }
}

TEST(EventLogs, KeepTheLastEventsAndCountTheOthers) {
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
  log->finish(1, 14, late);  // no longer kept: its place is another's
  log->finish(1, 15, late);
  EXPECT_EQ(log->events(1).front().name(), "late");
  EXPECT_EQ(log->events(1).back().name(), "24");
}

TEST(EventLogs, KeepWhatARankDidBeforeItWasKilled) {
  const auto log = EventLog::create(1);
  const auto result = launch(1, [&](const RankContext&) -> int {
    Recorder recorder(log, 0, monotonic_clock());
    end_span(begin_span(EventKind::forward, "done"));
    begin_span(EventKind::wait, "layers.3");
    raise(SIGKILL);
    return 0;
  });
  EXPECT_FALSE(result.ok());
  const auto events = log->events(0);
  ASSERT_EQ(events.size(), 2);
  EXPECT_TRUE(events[0].ended());
  EXPECT_EQ(events[1].name(), "layers.3");
  EXPECT_GT(events[1].begin, 0);
  EXPECT_FALSE(events[1].ended());
}

TEST(EventLogs, KeepTheEndOfALongName) {
  Event event;
  event.set_name(std::string("x.layers.3").insert(0, 100, 'x'));
  EXPECT_EQ(event.name().size(), 63);
  EXPECT_TRUE(event.name().ends_with("x.layers.3"));
}

TEST(Recorders, DoNothingWhenThereIsNone) {
  EXPECT_EQ(Recorder::current(), nullptr);
  end_span(begin_span(EventKind::step, ""));
}

TEST(Recorders, GiveASpanWhatIsAliveAtItsEndAndTheHighestTotalBefore) {
  const auto events = recorded([] {
    at::set_num_threads(1);
    const uint64_t outer = begin_span(EventKind::forward, "outer");
    at::Tensor kept = at::empty({100}, at::kByte);
    const uint64_t inner = begin_span(EventKind::forward, "inner");
    at::empty({1000}, at::kByte);
    end_span(inner);
    kept.reset();
    end_span(outer);
  });
  ASSERT_EQ(events.size(), 2);
  EXPECT_EQ(events[0].live.total, 0);
  EXPECT_EQ(events[0].peak, 100);
  EXPECT_EQ(events[1].live.total, 100);
  EXPECT_EQ(events[1].peak, 1100);
  EXPECT_EQ(events[0].begin, 1);
  EXPECT_EQ(events[1].begin, 2);
  EXPECT_EQ(events[1].end, 3);
  EXPECT_EQ(events[0].end, 4);
}

TEST(Recorders, TellWhenTheStorageOfAUnitIsFreedOnceForEachTimeItIsWatched) {
  const auto events = recorded([] {
    at::set_num_threads(1);
    at::Tensor gathered = at::empty({300}, at::kByte);
    at::Tensor other = at::empty({400}, at::kByte);
    Recorder::current()->watch(gathered.storage().data(), "layers.1");
    other.reset();
    gathered.reset();
    at::empty({300}, at::kByte);
  });
  ASSERT_EQ(events.size(), 1);
  EXPECT_EQ(events[0].text(), "free");
  EXPECT_EQ(events[0].name(), "layers.1");
  EXPECT_EQ(events[0].bytes, 300);
  EXPECT_EQ(events[0].live.total, 0);
}

TEST(Recorders, TakeTheTimesOfAFlightFromThoseWhoKnowThem) {
  const auto events = recorded([] {
    const uint64_t known = Recorder::current()->begin(event_of(EventKind::flight, "known"));
    const uint64_t other = Recorder::current()->begin(event_of(EventKind::flight, "other"));
    Recorder::current()->end_flight(known, std::pair<int64_t, int64_t>(70, 90));
    Recorder::current()->end_flight(other, std::nullopt);
  });
  ASSERT_EQ(events.size(), 2);
  EXPECT_EQ(events[0].begin, 70);
  EXPECT_EQ(events[0].end, 90);
  EXPECT_EQ(events[1].begin, 2);
  EXPECT_GT(events[1].end, 2);
}

}  // namespace
}  // namespace fsdp
