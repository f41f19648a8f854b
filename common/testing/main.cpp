#include <gtest/gtest.h>
#include <sys/resource.h>
#include <testing/kept_timeline.h>
#include <todo.h>

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

// Of this process and of each rank: what allocates without end is told, and not the machine's end.
// The sanitizers reserve more than that for themselves.
void limit_memory() {
#ifndef __SANITIZE_ADDRESS__
#ifndef __SANITIZE_THREAD__
  const rlimit limit{rlim_t{4} << 30, rlim_t{4} << 30};
  setrlimit(RLIMIT_DATA, &limit);
#endif
#endif
}

}  // namespace

// Starts no thread: the tests fork.
int main(int argc, char** argv) {
  limit_memory();
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new NotStartedMarker);  // which owns it
  return RUN_ALL_TESTS();
}
