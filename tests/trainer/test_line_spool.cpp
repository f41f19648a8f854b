#include <gtest/gtest.h>
#include <report/line_spool.h>

#include <common/set_variables.h>

namespace fsdp {
namespace {

TEST(LineSpool, all_added_lines_are_returned_and_few_stay_in_memory) {
  LineSpool spool;
  std::string text;
  for (int i = 0; i < 5'000; ++i) {
    spool.add(std::to_string(i) + std::string(40, 'x'));
    text += std::to_string(i) + std::string(40, 'x') + '\n';
  }
  EXPECT_EQ(spool.text(), text);
  EXPECT_EQ(spool.text(), text);
  EXPECT_LT(spool.bytes_in_memory(), 70'000);
}

TEST(LineSpool, lines_stay_in_memory_if_no_file_can_be_made) {
  const SetVariables set(Variables{{"TMPDIR", "/proc"}});
  LineSpool spool;
  std::string text;
  for (int i = 0; i < 5'000; ++i) {
    spool.add(std::string(40, 'y'));
    text += std::string(40, 'y') + '\n';
  }
  EXPECT_EQ(spool.text(), text);
}

}  // namespace
}  // namespace fsdp
