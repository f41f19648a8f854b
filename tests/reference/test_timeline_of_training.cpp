#include <comm/communicator_options.h>
#include <memory/live_bytes.h>
#include <report/parameter_summary.h>
#include <strategies/fsdp/fsdp_strategy.h>
#include <testing/multi_rank.h>
#include <trace/recorder.h>
#include <train/trainer.h>

#include <base/whole_file.h>
#include <common/expect_text.h>
#include <common/temporary_folder.h>

#include <filesystem>
#include <fstream>

#include <task7_integration/tiny_training.h>

namespace fsdp {
namespace {

// Trains two steps. Observes the calls that the communicator logged, the hash of the parameters,
// and the peaks of live bytes.
void train(TestRank& rank, const TrainConfig& config) {
  const auto strategy = make_fsdp_strategy(config, tiny_workload(config), rank.communicator());
  for (int64_t step = 0; step < 2; ++step) {
    const uint64_t span = begin_span(EventKind::step, "", static_cast<uint64_t>(step));
    strategy->forward_backward(step);
    strategy->step();
    end_span(span);
  }
  nlohmann::json calls;
  for (const Call& call : rank.communicator()->take_log())
    calls.push_back({call.sequence, to_string(call.operation), call.unit.str(), call.bytes});
  rank.observe("calls", calls);
  nlohmann::json peaks;
  for (size_t phase = 0; phase < kPhases; ++phase) {
    const LiveBytes peak = live_bytes::peak(static_cast<Phase>(phase));
    peaks.push_back({peak.by_class, peak.total});
  }
  rank.observe("peaks", peaks);
  ParameterSummary summary;
  strategy->full_parameters([&](const auto&, const at::Tensor& p) { summary.add(p); });
  if (rank.rank() == 0) rank.observe("hash", summary.sha256());
}

struct Recorded {
  RankRun run;
  std::vector<std::vector<Event>> events;  // the events of each rank; the first index is the rank
};

Recorded record(const TrainConfig& config) {
  const auto log = EventLog::create(config.ranks.world);
  Recorded recorded{run_ranks(config.ranks.world,
                              [&](TestRank& rank) {
                                Recorder recorder(log, rank.rank(), monotonic_clock());
                                train(rank, config);
                              },
                              {.record = false}),
                    {}};
  for (int rank = 0; rank < config.ranks.world; ++rank)
    recorded.events.push_back(log->events(rank));
  return recorded;
}

// Returns the events that began before the end of the last step.
std::vector<Event> of_steps(const std::vector<Event>& events) {
  int64_t end = 0;
  for (const Event& event : events) {
    if (event.kind == EventKind::step) end = event.end;
  }
  std::vector<Event> result;
  for (const Event& event : events) {
    if (event.begin < end) result.push_back(event);
  }
  return result;
}

MULTI_RANK_SUITE(TrainingTimeline);

MULTI_RANK_TEST(
    TrainingTimeline,
    a_timeline_has_the_logged_collectives_and_recording_it_does_not_change_the_training) {
  const TrainConfig config = tiny_config(world_size());
  const RankRun plain = run_ranks(config.ranks.world, [&](TestRank& rank) { train(rank, config); },
                                  {.record = false});
  const Recorded recorded = record(config);
  expect_on_rank(recorded.run, 0, "hash", plain.at(0, "hash"));
  for (int rank = 0; rank < world_size(); ++rank) {
    const nlohmann::json& expected = plain.at(rank, "calls");
    expect_on_rank(recorded.run, rank, "peaks", plain.at(rank, "peaks"));
    expect_on_rank(recorded.run, rank, "calls", expected);
    std::map<EventKind, nlohmann::json> calls;
    for (const Event& event : of_steps(recorded.events[rank])) {
      EXPECT_TRUE(event.ended()) << event.text() << ' ' << event.name();
      calls[event.kind].push_back(
          {event.call.sequence, to_string(event.call.operation), event.name(), event.call.bytes});
    }
    EXPECT_EQ(calls[EventKind::issue], expected) << "rank " << rank;
    EXPECT_EQ(calls[EventKind::flight], expected) << "rank " << rank;
    std::sort(calls[EventKind::wait].begin(), calls[EventKind::wait].end());
    EXPECT_EQ(calls[EventKind::wait], expected) << "rank " << rank;
  }
}

// The test compares the order of the units in the forward spans, the backward spans and the frees
// of the second step.
MULTI_RANK_TEST(TrainingTimeline, the_timeline_of_a_training_step_has_spans_and_frees_in_order) {
  using Names = std::vector<std::string>;
  const std::map<EventKind, Names> expected{
      {EventKind::forward, {"root", "h.0", "h.1", "h.2"}},
      {EventKind::backward, {"root", "h.2", "h.1", "h.0"}},
      {EventKind::free, {"h.0", "h.1", "h.2", "root", "h.2", "h.1", "h.0"}}};
  const Recorded recorded = record(tiny_config(world_size()));
  for (int rank = 0; rank < world_size(); ++rank) {
    std::map<EventKind, Names> orders;
    for (const Event& event : of_steps(recorded.events[rank])) {
      if (event.kind == EventKind::step) orders.clear();
      if (expected.contains(event.kind)) orders[event.kind].push_back(event.name());
    }
    EXPECT_EQ(orders, expected) << "rank " << rank;
  }
}

TEST(FailedRunTimeline, if_a_rank_is_killed_the_run_writes_a_timeline_that_shows_this_rank) {
  const TemporaryFolder folder;
  TrainConfig config = tiny_config(2);
  config.training.steps = 2;
  config.training.batch = 4;
  config.training.seq = 8;
  config.reports.trace = folder.path() + "/steps.txt";
  config.reports.json = folder.write("run.json", "what it held before");
  config.ranks.comm.fault = Fault{Fault::Kind::kill, 1, 9};
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int status = run_training(config, {make_fsdp_strategy, shard_layout});
  testing::internal::GetCapturedStderr();
  EXPECT_CONTAINS(testing::internal::GetCapturedStdout(), "timeline: " + config.reports.trace);
  EXPECT_EQ(status, 1);
  EXPECT_EQ(content_of(config.reports.json), "what it held before");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2);
  std::ifstream file(config.reports.trace);
  std::string text, last_of_rank_1;
  for (std::string line; std::getline(file, line); text += line + '\n') {
    if (line.starts_with(" 1 ")) last_of_rank_1 = line;
  }
  EXPECT_CONTAINS(text, "rank 1 was killed by signal 9");
  // The test does not check the events of rank 0, because the launcher can end rank 0 before it
  // waits for rank 1.
  EXPECT_CONTAINS(last_of_rank_1, "no end backward ");
  EXPECT_CONTAINS(last_of_rank_1, " h.2");
}

}  // namespace
}  // namespace fsdp
