#include <gtest/gtest.h>
#include <reproduce/line_table.h>
#include <unistd.h>

#include "fake_train.h"
#include "rows_of_text.h"

namespace fsdp {
namespace {

// Returns the table that the TOML `text` describes. `fake` takes the place of the train program.
// For a line with another command COMMAND, nothing is run; its output is taken to be "head 1" and
// then "shm 2 COMMAND".
Table made(const std::string& text, FakeTrain& fake) {
  return run_lines(
      table_of_text(text), [&](const auto& options) -> const auto& { return fake(options); },
      [](const std::string& command) { return "head 1\nshm 2 " + command; });
}

TEST(LineTable, a_line_table_shows_the_verdict_of_each_run_and_a_note_for_each_failure) {
  FakeTrain fake([](const TrainOptions& options, TrainResult& result) {
    if (value_of(options, "--seed") == "4") throw std::runtime_error("rank 1 was lost");
    if (value_of(options, "--seed") == "5") result.last["param_sha256"] = "other";
  });
  const Table table = made(R"(
options = "--world 2"
labels = ["run", "of"]
columns = ["first loss", "sha256"]
published = ["theirs"]
notes = ["""
A note
of two lines"""]
line = [
  { labels = ["one", "a"], options = "--seed 3", published = ["7.2"] },
  { labels = ["two", "b"], options = "--seed 5", same_parameters = true },
  { labels = ["three", "c"], options = "--seed 4", if_it_fails = ["", "none"] },
  { cells = ["four", "d", "1", "2"] },
  { labels = ["five", "x"], command = "bench", read = { "first loss" = { line = "shm 2", word = 2 }, sha256 = "-" } },
  { labels = ["six", "f"], options = "--seed 4" },
  { labels = ["seven", "g"], command = "bench", read = { "first loss" = { line = "shm", word = 9 }, sha256 = "" } },
]
)",
                           fake);
  EXPECT_EQ(table.markdown(),
            "## Title\n\n"
            "| run   | of | first loss | sha256   | theirs |        |\n"
            "|-------|----|------------|----------|--------|--------|\n"
            "| one   | a  |     7.1116 | abcdef01 |    7.2 | ok     |\n"
            "| two   | b  |     7.1116 | other    |        | NOT OK |\n"
            "| three | c  |            | none     |        |        |\n"
            "| four  | d  |          1 |        2 |        |        |\n"
            "| five  | x  | bench      |        - |        |        |\n"
            "| six   | f  |            |          |        | NOT OK |\n"
            "| seven | g  |            |          |        | NOT OK |\n"
            "\nthree, c: rank 1 was lost\n\nsix f: rank 1 was lost\n"
            "\nseven g: the printed line shm has no word 9\n\nA note of two lines\n");
}

TEST(LineTable, a_run_of_a_table_that_keeps_a_receipt_gets_the_option_receipt) {
  FakeTrain fake;
  made(R"(
labels = ["run"]
columns = ["loss"]
line = [
  { labels = ["one"], options = "--world 1" },
  { labels = ["two"], options = "--world 2", receipt = 8 },
  { labels = ["three"], options = "--world 3", receipt = 1 },
]
)",
       fake);
  using Options = std::vector<std::string>;
  std::vector<Options> options;
  for (const auto& [run, result] : fake.results())
    options.push_back(run);
  EXPECT_EQ(options,
            (std::vector<Options>{
                {"--world", "1"},
                {"--world", "2", "--receipt", "%/row-1.receipt", "--receipt-sample", "8"},
                {"--world", "3", "--receipt", "%/row-2.receipt", "--receipt-sample", "1"}}));
}

TEST(LineTable, a_program_other_than_train_gets_the_options_of_the_table_and_of_the_line) {
  FakeTrain fake;
  const Table table = made(R"(
program = "plan"
options = "--world 2"
labels = ["run"]
columns = ["first", "last"]
read = { first = { line = "shm 2", word = 2 }, last = { line = "shm 2", word = 6, unit = "GB" } }
line = [{ labels = ["one"], options = "--rows 3" }]
)",
                           fake);
  EXPECT_EQ(table.lines.at(0).cells, (std::vector<std::string>{"one", "plan", "3 GB"}));
  EXPECT_FALSE(table.lines[0].ok.has_value());
}

TEST(LineTable, a_table_leaves_out_a_run_that_needs_more_cores_than_the_machine_has) {
  FakeTrain fake;
  const std::string world = std::to_string(sysconf(_SC_NPROCESSORS_ONLN) + 1);
  const Table table = made(
      "needs = \"cores\"\nlabels = [\"W\"]\ncolumns = [\"loss\", "
      "\"sha256\"]\nline = [{ labels = [\"many\"], options = \"--world " +
          world + "\" }]\n",
      fake);
  EXPECT_EQ(table.lines.at(0).cells,
            (std::vector<std::string>{"many", "needs " + world + " cores", ""}));
  EXPECT_TRUE(table.ok());
  EXPECT_TRUE(fake.results().empty());
}

TEST(LineTable, a_line_of_a_table_is_ok_only_if_the_check_of_this_table_passes) {
  FakeTrain fake([](const TrainOptions&, TrainResult& result) {
    result.steps[3]["held_out"] = {{"accuracy", 1}};
  });
  const std::string text =
      "check = \"solved\"\nlabels = [\"run\"]\ncolumns = [\"solved at\"]\n"
      "line = [{ labels = [\"one\"], options = \"--world 2\" }]\n";
  EXPECT_EQ(made(text, fake).lines.at(0).cells.at(1), "4");
  EXPECT_TRUE(made(text, fake).ok());
  FakeTrain unsolved;
  EXPECT_EQ(made(text, unsolved).lines.at(0).cells.at(1), "never");
  EXPECT_FALSE(made(text, unsolved).ok());
}

}  // namespace
}  // namespace fsdp
