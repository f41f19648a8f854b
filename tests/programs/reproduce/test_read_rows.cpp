#include <command_line/toml.h>
#include <gtest/gtest.h>

#include <common/expect_text.h>

#include "rows_of_text.h"

namespace fsdp {
namespace {

const char* const kRow =
    "legend = \"\"\n"
    "[[row]]\n"
    "name = \"a\"\n"
    "source = \"Writeup 1\"\n"
    "kind = \"measured\"\n"
    "minutes = 1\n";

// Returns the error for a file that has the text kRow followed by these lines. The first of these
// lines is line 7.
std::string wrong_row(const std::string& lines) {
  return error_of<TomlError>([&] { read_rows(kRow + lines, "tables.toml"); });
}

// Returns the error for a table with these lines. The first of these lines is line 11.
std::string wrong_table(const std::string& lines) {
  return error_of<TomlError>([&] { table_of_text(lines); });
}

TEST(ReadRows, read_rows_reads_the_keys_of_each_row_of_a_file_such_as_tables_toml) {
  const Rows read = read_rows(std::string(kRow) +
                                  "when = \"never\"\ncommand = \"./fsdp check\"\n"
                                  "[[row]]\nname = \"b\"\nsource = \"\"\nkind = \"test\"\n"
                                  "minutes = 0\nsame_as = \"a\"\n"
                                  "[[row]]\nname = \"c\"\nsource = \"\"\nkind = \"planned\"\n"
                                  "minutes = 0\nwhen = \"default\"\ncode = \"strict\"\n",
                              "tables.toml");
  ASSERT_EQ(read.rows.size(), 3U);
  EXPECT_EQ(read.rows[0].command, "./fsdp check");
  EXPECT_EQ(read.rows[1].command, "./fsdp reproduce --only a");
  EXPECT_EQ(read.rows[1].when, "never");
  EXPECT_EQ(read.rows[2].command, "./fsdp reproduce --only c");
  EXPECT_EQ(read.rows[2].number, 3);
  EXPECT_TRUE(read.rows[2].has_tables() && !read.rows[0].has_tables());
}

TEST(ReadRows, read_rows_refuses_a_wrong_missing_or_unknown_key_of_a_row_and_names_the_line) {
  EXPECT_EQ(wrong_row("when = \"all\"\nminuets = 2\ncode = \"strict\"\n"),
            "tables.toml:8: [[row]] has no key minuets; it may have name, source, kind, minutes, "
            "when, command, same_as, code and table");
  EXPECT_EQ(wrong_row("code = \"strict\"\n"), "tables.toml:2: [[row]] lacks when");
  EXPECT_EQ(wrong_row("when = \"now\"\n"),
            "tables.toml:7: [[row]] has the when now, which must be default, all, long or never");
  EXPECT_EQ(wrong_row("when = 3\n"),
            "tables.toml:7: [[row]] has a when that is not a text in quotes");
  EXPECT_EQ(wrong_row("when = \"all\"\n"),
            "tables.toml:2: [[row]] needs [[row.table]] or code: a runs with --all");
  EXPECT_EQ(wrong_row("when = \"never\"\n"),
            "tables.toml:2: [[row]] needs command: nothing shows a");
  EXPECT_EQ(wrong_row("same_as = \"b\"\n"),
            "tables.toml:7: [[row]] has the same_as b, which is the name of no row");
  const std::string again(kRow + std::string("same_as = \"a\"\n"));
  EXPECT_EQ(wrong_row("same_as = \"a\"\n" + again.substr(again.find('\n') + 1)),
            "tables.toml:9: [[row]] has the name a, as a row above has");
}

TEST(ReadRows, read_rows_refuses_a_receipt_of_one_event_in_0_and_a_receipt_of_a_bench_run) {
  const std::string table = "labels = [\"W\"]\ncolumns = [\"loss\"]\n";
  EXPECT_CONTAINS(wrong_table(table + "line = [{ labels = [\"1\"], receipt = 0 }]\n"),
                  "has a receipt of one event in 0; it must be 1 (all events) or more");
  EXPECT_CONTAINS(
      wrong_table(table + "read = { loss = \"1\" }\n"
                          "line = [{ labels = [\"1\"], command = \"bench\", receipt = 8 }]\n"),
      "has a receipt, which only a run of train leaves");
}

TEST(ReadRows, read_rows_refuses_a_table_with_a_column_that_no_run_fills) {
  EXPECT_CONTAINS(
      wrong_table("labels = [\"W\"]\ncolumns = [\"peek\"]\n"
                  "line = [{ labels = [\"1\"], options = \"--world 1\" }]\n"),
      "tables.toml:12: [[row.table]] has the column peek, which no run has; it may have ");
  const std::string plan = "program = \"plan\"\nlabels = [\"W\"]\ncolumns = [\"all\"]\n";
  EXPECT_EQ(wrong_table(plan + "line = [\n  { labels = [\"1\"] },\n]\n"),
            "tables.toml:15: line lacks the column all in `read`, which names the word to read");
  EXPECT_EQ(wrong_table(plan + "read = { al = \"1\" }\nline = [{ labels = [\"1\"] }]\n"),
            "tables.toml:14: read reads al, and the table has no such column");
  EXPECT_EQ(
      wrong_table(plan + "read = { all = { line = \"a\" } }\nline = [{ labels = [\"1\"] }]\n"),
      "tables.toml:14: all lacks word");
}

TEST(ReadRows, read_rows_refuses_a_line_that_does_not_fit_the_columns_of_its_table) {
  const std::string table = "labels = [\"model\", \"W\"]\ncolumns = [\"peak\"]\n";
  EXPECT_EQ(wrong_table(table + "line = [{ labels = [\"small\"] }]\n"),
            "tables.toml:13: line has 1 text in labels; the table has 2 such columns");
  EXPECT_EQ(wrong_table(table + "line = [{ labels = [\"a\", \"1\"], published = [\"3\"] }]\n"),
            "tables.toml:13: line has 1 text in published; the table has 0 such columns");
  EXPECT_EQ(wrong_table(table + "line = [{ cells = [\"a\", \"1\", \"2\", \"3\"] }]\n"),
            "tables.toml:13: line has 4 cells; the table has 3 columns");
  EXPECT_EQ(wrong_table(table + "[[row.table.line]]\ncells = [\"a\"]\noptions = \"\"\n"),
            "tables.toml:15: [[row.table.line]] has no key options; it may have cells");
  EXPECT_EQ(
      wrong_table(table + "line = [{ labels = [\"a\", \"1\"], if_it_fails = [\"\", \"\"] }]\n"),
      "tables.toml:13: line has more texts in if_it_fails than the table has columns");
  EXPECT_EQ(wrong_table(table + "check = \"solved\"\n"),
            "tables.toml:13: [[row.table]] has a check that reads the column solved at, which the "
            "table lacks");
  EXPECT_EQ(wrong_table(table), "tables.toml:9: [[row.table]] has neither a line nor a factor");
}

TEST(ReadRows, read_rows_refuses_a_pairs_table_with_incomplete_or_invalid_factors_or_comparisons) {
  const std::string factor =
      "[[row.table.factor]]\nname = \"W\"\napplies_to = \"every run\"\nvalues = [[\"1\", \"\"]]\n";
  EXPECT_EQ(wrong_table(factor),
            "tables.toml:9: [[row.table]] needs comparisons: the options of the runs that are "
            "compared");
  EXPECT_EQ(wrong_table("comparisons = [[\"--mode ddp\"]]\n" + factor),
            "tables.toml:12: [[row.table]] needs at least two factors");
  EXPECT_EQ(wrong_table("comparisons = [[\"--mode ddp\"]]\n"),
            "tables.toml:11: [[row.table]] has comparisons but no factor");
  EXPECT_EQ(wrong_table("columns = [\"peak\"]\n" + factor),
            "tables.toml:11: [[row.table]] has factors, which take the place of columns");
  EXPECT_EQ(wrong_table("comparisons = [[\"\"]]\n[[row.table.factor]]\nname = \"W\"\n"
                        "applies_to = \"first run\"\nvalues = [[\"1\"]]\n"),
            "tables.toml:15: [[row.table.factor]] has a value that is not [text, options]");
}

}  // namespace
}  // namespace fsdp
