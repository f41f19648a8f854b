#include <base/todo.h>
#include <gtest/gtest.h>
#include <testing/judge/remote_ranks.h>
#include <testing/kept_timeline.h>
#include <testing/memory_limit.h>

#include <string>
#include <string_view>

namespace {

// A test that came to a todo() is marked, whatever else became of it: in the results as the
// property "not_started", with what is still to be written.
class NotStartedMarker : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { fsdp::take_todo(); }

  void OnTestEnd(const testing::TestInfo& test) override {
    const std::string unwritten = fsdp::take_todo();
    if (!unwritten.empty()) testing::Test::RecordProperty("not_started", unwritten);
    fsdp::kept_timeline::end_test(test.test_suite_name(), test.name(), test.result()->Failed());
  }
};

}  // namespace

// Starts no thread: the tests fork.
int main(int argc, char** argv) {
  fsdp::limit_memory(int64_t{4} << 30);  // of each rank, too
  testing::InitGoogleTest(&argc, argv);
  constexpr std::string_view kReportTo = "--report_to=";
  if (argc > 1 && std::string_view(argv[1]).starts_with(kReportTo)) {
    fsdp::remote_ranks::report_to(std::stoi(argv[1] + kReportTo.size()));
  }
  testing::UnitTest::GetInstance()->listeners().Append(new NotStartedMarker);  // which owns it
  return RUN_ALL_TESTS();
}
