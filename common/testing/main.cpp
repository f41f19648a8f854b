#include <gtest/gtest.h>
#include <testing/judge/remote_ranks.h>
#include <testing/kept_timeline.h>
#include <testing/memory_limit.h>
#include <testing/results.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

namespace {

class TimelineKeeper : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo& test) override {
    fsdp::kept_timeline::end_test(test.test_suite_name(), test.name(), test.result()->Failed());
  }
};

// For ./fsdp check --record: keeps a recording of each failed test in the folder that FSDP_RECORD
// names, as a folder such as SUITE.NAME/W2; if FSDP_RECORD_PASSED is set, of each passed test too.
class RecordingKeeper : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override {
    const std::string name = std::string(test.test_suite_name()) + '.' + test.name();
    folder_ = all_ / name;
    // If the folder exists, it has an earlier recording. Then FSDP_RECORD becomes "", so nothing is
    // recorded and the earlier recording stays.
    if (std::filesystem::exists(folder_)) folder_.clear();
    setenv("FSDP_RECORD", folder_.c_str(), 1);
    setenv("FSDP_RECORD_AS", ("--gtest_filter=" + name).c_str(), 1);
  }
  void OnTestEnd(const testing::TestInfo& test) override {
    std::error_code none;
    const bool keep = test.result()->Failed() || std::getenv("FSDP_RECORD_PASSED") != nullptr;
    if (!keep) std::filesystem::remove_all(folder_, none);
    // Removes the folder around that of the recording, such as SUITE.NAME around SUITE.NAME/W2, if
    // it is empty; otherwise remove() fails.
    std::filesystem::remove(folder_.parent_path(), none);
  }
  std::filesystem::path all_{std::getenv("FSDP_RECORD")}, folder_;
};

// Returns the number in an `argument` that begins with `option`, such as "--results_to="; -1 if it
// begins otherwise.
int file_in(std::string_view argument, std::string_view option) {
  return argument.starts_with(option) ? std::stoi(std::string(argument.substr(option.size()))) : -1;
}

}  // namespace

// main() starts no thread, because the tests fork this process.
int main(int argc, char** argv) {
  fsdp::limit_memory(int64_t{4} << 30);  // [bytes]; the forked ranks inherit this limit of memory
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const int results = file_in(argv[i], "--results_to=");
    const int reports = file_in(argv[i], "--report_to=");
    if (results >= 0) fsdp::results::write_to(results);
    if (reports >= 0) fsdp::remote_ranks::report_to(reports);
  }
  // GoogleTest owns the listeners, and deletes them.
  testing::UnitTest::GetInstance()->listeners().Append(new TimelineKeeper);
  if (std::getenv("FSDP_RECORD") != nullptr)
    testing::UnitTest::GetInstance()->listeners().Append(new RecordingKeeper);
  return RUN_ALL_TESTS();
}
