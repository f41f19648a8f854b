#include <base/torch.h>
#include <gtest/gtest.h>
#include <launch/launcher.h>
#include <memory/counting_allocator.h>
#include <trace/recorder.h>

namespace fsdp {
namespace {

// A clock on which each call of now() is one nanosecond later than the last one.
class CountingClock final : public Clock {
 public:
  int64_t now() override { return ++now_; }
  void sleep_until(int64_t) override {}

 private:
  int64_t now_{};
};

// Runs `body` in one rank with a recorder, and returns the events of its log.
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

Call call_of(Operation operation, uint64_t sequence, const std::string& unit) {
  Call call;
  call.sequence = sequence;
  call.operation = operation;
  call.unit = UnitName(unit);
  return call;
}

TEST(Recorder, a_recorded_span_has_the_live_bytes_at_its_end_and_the_peak_within_it) {
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

TEST(Recorder, the_recorder_records_once_that_the_gathered_storage_of_a_unit_was_freed) {
  const auto events = recorded([] {
    at::set_num_threads(1);
    at::Tensor gathered = at::empty({300}, at::kByte);
    at::Tensor other = at::empty({400}, at::kByte);
    call_observers::issued(call_of(Operation::all_gather, 0, "layers.1"), gathered);
    call_observers::issued(call_of(Operation::all_gather, 1, kMetrics), other);
    other.reset();
    gathered.reset();
    at::empty({300}, at::kByte);
  });
  // Each of the two collectives has an issue event and a flight event. The fifth event, of kind
  // free, records that the storage of layers.1 was freed.
  ASSERT_EQ(events.size(), 5);
  EXPECT_EQ(events[4].text(), "free");
  EXPECT_EQ(events[4].name(), "layers.1");
  EXPECT_EQ(events[4].call.bytes, 300);
  EXPECT_EQ(events[4].live.total, 0);
}

TEST(Recorder,
     the_flight_event_of_a_collective_has_the_begin_and_end_of_its_transfer_if_they_are_known) {
  const auto events = recorded([] {
    const Call known = call_of(Operation::broadcast, 0, "known");
    const Call other = call_of(Operation::broadcast, 1, "other");
    call_observers::issued(known, at::Tensor());
    call_observers::issued(other, at::Tensor());
    call_observers::waits(known);
    call_observers::waited(known, std::pair<int64_t, int64_t>(70, 90));
    call_observers::waits(other);
    call_observers::waited(other, std::nullopt);
  });
  ASSERT_EQ(events.size(), 6);
  EXPECT_EQ(events[1].text(), "broadcast flight");
  EXPECT_EQ(events[1].begin, 70);
  EXPECT_EQ(events[1].end, 90);
  EXPECT_EQ(events[3].begin, 4);
  EXPECT_GT(events[3].end, 4);
  EXPECT_EQ(events[5].text(), "broadcast wait");
  EXPECT_GT(events[5].end, events[3].end);
}

// A call that was issued before the recorder existed can belong to an iteration that was not
// recorded.
TEST(Recorder, the_recorder_records_the_wait_for_a_collective_that_was_issued_before_it_existed) {
  const auto events = recorded([] {
    begin_span(EventKind::forward, "layers.0");
    const Call earlier = call_of(Operation::broadcast, 7, "layers.0");
    call_observers::waits(earlier);
    call_observers::waited(earlier, std::nullopt);
  });
  ASSERT_EQ(events.size(), 2);
  EXPECT_FALSE(events[0].ended()) << "the end of the flight was written over another event";
  EXPECT_TRUE(events[1].ended());
  EXPECT_EQ(events[1].text(), "broadcast wait");
}

}  // namespace
}  // namespace fsdp
