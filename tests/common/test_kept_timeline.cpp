#include <gtest/gtest.h>
#include <testing/kept_timeline.h>
#include <trace/event.h>

#include <fstream>

#include "temporary_folder.h"
#include "timeline_events.h"

namespace fsdp {
namespace {

TEST(KeptTimeline, only_the_first_failed_test_keeps_its_timeline_and_notes_this_in_its_result) {
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

}  // namespace
}  // namespace fsdp
