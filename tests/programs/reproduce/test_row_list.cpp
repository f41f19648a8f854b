#include <gtest/gtest.h>
#include <reproduce/read_rows.h>
#include <reproduce/report.h>
#include <reproduce/row_list.h>

#include <common/expect_text.h>
#include <common/temporary_folder.h>

#include <sstream>

namespace fsdp {
namespace {

TEST(RowList, the_list_of_rows_shows_kind_command_and_last_verdict_in_100_columns) {
  const TemporaryFolder folder;
  Report{"memory", "", {{"A", {"W"}, {{{"2"}, true}}, {}}}}.write(folder.path(), {});
  Report{"wraps", "", {{"B", {"W"}, {{{"2"}, false}}, {}}}}.write(folder.path(), {});
  const std::string text = list(rows_of_tables_toml(), {folder.path()});
  for (const char* part :
       {"Writeup 1.1, Q1    measured     1 ok      ./fsdp reproduce --only memory",
        "Notes, Sharding    measured     1 ok      ./fsdp reproduce --only memory",
        "measured     1 NOT OK  ./fsdp reproduce --only wraps",
        "test         1 tests   ./fsdp check 1 --solutions",
        "measured     1 not run ./fsdp reproduce --only limits"})
    EXPECT_CONTAINS(text, part);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    EXPECT_LE(line.size(), 100U) << line;
}

}  // namespace
}  // namespace fsdp
