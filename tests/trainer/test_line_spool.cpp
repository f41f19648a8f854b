#include <gtest/gtest.h>
#include <report/line_spool.h>

#include <common/set_variables.h>

namespace fsdp {
namespace {

TEST(LineSpool, gives_back_what_another_one_is_filled_with) {
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

TEST(LineSpool, keeps_lines_in_memory_if_there_is_no_place_for_a_file) {
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
