#include <gtest/gtest.h>
#include <testing/judge/remote_ranks.h>
#include <testing/kept_timeline.h>
#include <testing/memory_limit.h>
#include <testing/results.h>

#include <string>
#include <string_view>

namespace {

class TimelineKeeper : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo& test) override {
    fsdp::kept_timeline::end_test(test.test_suite_name(), test.name(), test.result()->Failed());
  }
};

// The number in an argument "--NAME=NUMBER"; -1 if the argument is another one.
int file_in(std::string_view argument, std::string_view option) {
  return argument.starts_with(option) ? std::stoi(std::string(argument.substr(option.size()))) : -1;
}

}  // namespace

// Starts no thread: the tests fork.
int main(int argc, char** argv) {
  fsdp::limit_memory(int64_t{4} << 30);  // of each rank, too
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const int results = file_in(argv[i], "--results_to=");
    const int reports = file_in(argv[i], "--report_to=");
    if (results >= 0) fsdp::results::write_to(results);
    if (reports >= 0) fsdp::remote_ranks::report_to(reports);
  }
  testing::UnitTest::GetInstance()->listeners().Append(new TimelineKeeper);  // which owns it
  return RUN_ALL_TESTS();
}
