#include <gtest/gtest.h>
#include <trace/timeline.h>

#include <nlohmann/json.hpp>

#include "timeline_events.h"

namespace fsdp {
namespace {

TEST(ChromeTimeline, the_chrome_timeline_shows_each_rank_as_a_process_with_threads_and_counters) {
  const auto whole = nlohmann::json::parse(chrome_timeline(two_ranks()));
  EXPECT_EQ(whole["otherData"]["failure"], "rank 0 was killed");
  std::map<std::string, std::vector<nlohmann::json>> phases;
  for (const auto& line : whole["traceEvents"])
    phases[line["ph"]].push_back(line);

  // Three metadata events (phase M) for each rank: they name its process, its compute thread and
  // its communication thread.
  EXPECT_EQ(phases["M"].size(), 2 * 3);
  ASSERT_EQ(phases["X"].size(), 2);
  EXPECT_EQ(phases["X"][0]["name"], "forward layers.3");
  EXPECT_EQ(phases["X"][0]["tid"], 0);
  EXPECT_EQ(phases["X"][0]["dur"], 2000.0);
  EXPECT_EQ(phases["X"][1]["tid"], 1);
  EXPECT_EQ(phases["X"][1]["args"]["bytes"], 1'500'000);
  ASSERT_EQ(phases["i"].size(), 1);
  EXPECT_EQ(phases["i"][0]["ts"], 1.0);
  ASSERT_EQ(phases["B"].size(), 1) << "the wait that did not end";
  EXPECT_EQ(phases["B"][0]["pid"], 1);

  // Each of the two events that have live bytes gives two counter values.
  ASSERT_EQ(phases["C"].size(), 4);
  EXPECT_EQ(phases["C"][0]["ts"], 1.0);
  EXPECT_EQ(phases["C"][0]["args"]["gathered"], 192);
  EXPECT_EQ(phases["C"][1]["args"]["bytes"], 4'000'000);
}

TEST(ChromeTimeline, overlapping_collectives_get_separate_threads_in_the_chrome_timeline) {
  const std::vector<Event> events{
      event(EventKind::flight, "a", 0, 100), event(EventKind::wait, "a", 0, 100),
      event(EventKind::flight, "b", 50, 150), event(EventKind::flight, "c", 100, 0),
      event(EventKind::flight, "d", 160, 170)};
  EXPECT_EQ(timeline_detail::flight_lanes(events), (std::vector<size_t>{0, 0, 1, 0, 1}));
}

}  // namespace
}  // namespace fsdp
