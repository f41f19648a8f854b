#include <gtest/gtest.h>
#include <testing/kept_timeline.h>
#include <trace/timeline.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "expect_text.h"
#include "temporary_folder.h"

namespace fsdp {
namespace {

constexpr int64_t kStart = 5'000'000'000;  // [ns]

Event event(EventKind kind, const std::string& name, int64_t begin, int64_t end) {
  Event event;
  event.kind = kind;
  event.call.unit = UnitName(name);
  event.begin = kStart + begin;
  event.end = end == 0 ? 0 : kStart + end;
  if (kind == EventKind::issue || kind == EventKind::flight || kind == EventKind::wait) {
    event.call.operation = Operation::all_gather;
    event.call.sequence = 12;
    event.call.bytes = 1'500'000;
  }
  if (end != 0 && kind != EventKind::flight) {
    event.live.total = 3'000'000;
    event.live.by_class[static_cast<size_t>(MemoryClass::gathered)] = 192;
    event.peak = 4'000'000;
  }
  return event;
}

// Rank 1 never came back from its wait.
Timeline two_ranks() {
  return {"fsdp of small, 2 ranks",
          "rank 0 was killed",
          {{event(EventKind::forward, "layers.3", 0, 2'000'000),
            event(EventKind::issue, "layers.3", 1000, 1000),
            event(EventKind::flight, "layers.3", 1000, 900'000)},
           {event(EventKind::wait, "</script>", 200, 0)}}};
}

TEST(TextTimeline, has_a_line_for_each_event_in_the_order_of_time) {
  EXPECT_EQ(text_timeline(two_ranks()), R"(fsdp of small, 2 ranks
rank 0 was killed
 r   begin ms length ms event                        unit                bytes       live   gathered
 0      0.000     2.000 forward                      layers.3                     3000000        192
 1      0.000    no end all_gather wait          #12 </script>         1500000
 0      0.001           all_gather issue         #12 layers.3          1500000    3000000        192
 0      0.001     0.899 all_gather flight        #12 layers.3          1500000
)");
}

TEST(TextTimeline, fits_in_100_columns_with_long_names_and_large_numbers) {
  Timeline timeline = two_ranks();
  Event wide = event(EventKind::flight, "model.transformer.layers.31", 900'000'000'000, 0);
  wide.call.operation = Operation::reduce_scatter;
  wide.call.sequence = 12345;
  wide.call.bytes = 6'000'000'000;
  timeline.failure = std::string(250, 'a') + " rank 1 called all_gather " + std::string(60, 'b');
  timeline.ranks.resize(64);
  timeline.ranks[63] = {wide};
  std::istringstream lines(text_timeline(timeline));
  std::string line;
  while (std::getline(lines, line))
    EXPECT_LE(line.size(), 100U) << line;
  EXPECT_CONTAINS(text_timeline(timeline), "..er.layers.31");
}

TEST(Timelines, are_written_even_without_events) {
  const Timeline nothing{"fsdp of small, 2 ranks", "rank 0 was killed", {{}, {}}};
  for (const std::string& text :
       {text_timeline(nothing), chrome_timeline(nothing), html_timeline(nothing)})
    EXPECT_CONTAINS(text, "rank 0 was killed");
  EXPECT_TRUE(nlohmann::json::accept(chrome_timeline(nothing)));
}

TEST(ChromeTimeline, has_a_process_per_rank_with_threads_and_counters) {
  const auto whole = nlohmann::json::parse(chrome_timeline(two_ranks()));
  EXPECT_EQ(whole["otherData"]["failure"], "rank 0 was killed");
  std::map<std::string, std::vector<nlohmann::json>> phases;
  for (const auto& line : whole["traceEvents"])
    phases[line["ph"]].push_back(line);

  EXPECT_EQ(phases["M"].size(), 2 * 3);  // a process, compute and communication
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

  ASSERT_EQ(phases["C"].size(), 4);  // two events whose live bytes were taken
  EXPECT_EQ(phases["C"][0]["ts"], 1.0);
  EXPECT_EQ(phases["C"][0]["args"]["gathered"], 192);
  EXPECT_EQ(phases["C"][1]["args"]["bytes"], 4'000'000);
}

TEST(ChromeTimeline, puts_overlapping_flights_into_separate_threads) {
  const std::vector<Event> events{
      event(EventKind::flight, "a", 0, 100), event(EventKind::wait, "a", 0, 100),
      event(EventKind::flight, "b", 50, 150), event(EventKind::flight, "c", 100, 0),
      event(EventKind::flight, "d", 160, 170)};
  EXPECT_EQ(timeline_detail::flight_lanes(events), (std::vector<size_t>{0, 0, 1, 0, 1}));
}

TEST(HtmlTimeline, is_one_page_that_contains_its_data) {
  const std::string page = html_timeline(two_ranks());
  EXPECT_LACKS(page, "{\"the data\": 0}");
  EXPECT_LACKS(page, "http") << "needs the network";
  const size_t begin = page.find("id=\"data\">") + 10;
  const auto data = nlohmann::json::parse(page.substr(begin, page.find("</script>") - begin));
  EXPECT_EQ(data["title"], "fsdp of small, 2 ranks");
  EXPECT_EQ(data["names"], nlohmann::json::array({"layers.3", "</script>"}));
  ASSERT_EQ(data["ranks"].size(), 2);
  const auto& first = data["ranks"][0];
  EXPECT_EQ(first["events"][0], nlohmann::json::array({1, 0, 0, 0, 2'000'000, 0, 0, 0}));
  EXPECT_EQ(first["events"][2], nlohmann::json::array({5, 0, 0, 1000, 899'000, 12, 1'500'000, 0}));
  EXPECT_EQ(first["live"], nlohmann::json::parse("[[1000,4000000,0,192,0,0,0,0,0],"
                                                 "[2000000,4000000,0,192,0,0,0,0,0]]"));
  EXPECT_EQ(data["ranks"][1]["events"][0][4], -1) << "it did not end";
}

TEST(KeptTimeline, is_that_of_the_first_failure_whose_result_says_so) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/t.txt";
  setenv("FSDP_TRACE", file.c_str(), 1);
  const auto log = EventLog::create(1);
  log->add(0, event(EventKind::issue, "a", 0, 0));
  const auto& result = *testing::UnitTest::GetInstance()->current_test_info()->result();
  kept_timeline::end_test("S", "without_a_collective/W1", true);
  EXPECT_EQ(result.test_property_count(), 0);
  for (const char* test : {"passes/W2", "fails/W2", "fails_too/W2"}) {
    kept_timeline::keep(log);
    kept_timeline::end_test("S", test, std::string(test) != "passes/W2");
  }
  unsetenv("FSDP_TRACE");
  ASSERT_EQ(result.test_property_count(), 1);
  EXPECT_EQ(result.GetTestProperty(0).key(), std::string(kept_timeline::kWritten));
  std::ifstream written(file);
  std::string title;
  std::getline(written, title);
  EXPECT_EQ(title, "S.fails/W2");
}

TEST(Timelines, have_the_format_that_the_name_of_the_file_says) {
  EXPECT_EQ(timeline_writer("a/b.txt"), text_timeline);
  EXPECT_EQ(timeline_writer("a/b.json"), chrome_timeline);
  EXPECT_EQ(timeline_writer("a/b.html"), html_timeline);
  EXPECT_EQ(error_of<std::invalid_argument>([] { timeline_writer("a/b.png"); }),
            "a/b.png: the name of a timeline ends in .txt, .json or .html");
}

}  // namespace
}  // namespace fsdp
