#include <gtest/gtest.h>
#include <todo.h>

namespace {

// A test that came to a todo() is marked, whatever else became of it: in the results as the
// property "not_started", with what is still to be written.
class NotStartedMarker : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { fsdp::take_todo(); }

  void OnTestEnd(const testing::TestInfo&) override {
    const std::string unwritten = fsdp::take_todo();
    if (!unwritten.empty()) testing::Test::RecordProperty("not_started", unwritten);
  }
};

}  // namespace

// Starts no thread: the tests fork.
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new NotStartedMarker);  // which owns it
  return RUN_ALL_TESTS();
}
