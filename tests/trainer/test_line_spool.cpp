#include <gtest/gtest.h>
#include <report/line_spool.h>

#include <common/set_variables.h>

namespace fsdp {
namespace {

TEST(LineSpool, a_line_spool_returns_all_added_lines_and_keeps_few_in_memory) {
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

TEST(LineSpool, a_line_spool_keeps_lines_in_memory_if_it_can_make_no_file) {
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
