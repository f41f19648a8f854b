#include <gtest/gtest.h>
#include <options/options.h>
#include <reproduce/registry.h>
#include <reproduce/report.h>

#include <common/expect_text.h>
#include <common/temporary_folder.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

namespace fsdp {
namespace {

const std::vector<Row>& rows() {
  static const std::vector<Row> rows = registry({});
  return rows;
}

const Row& row(const std::string& name) {
  return *std::ranges::find_if(rows(), [&](const Row& row) { return row.name == name; });
}

TEST(ReproduceRegistry, has_thirty_five_rows_with_names_of_their_own) {
  ASSERT_EQ(rows().size(), 35U);
  std::set<std::string> names;
  for (const Row& row : rows()) {
    names.insert(row.name);
    EXPECT_EQ(row.number, static_cast<int>(&row - rows().data()) + 1);
    EXPECT_TRUE(row.make || row.set == "never" || row.set.starts_with("as ")) << row.name;
  }
  EXPECT_EQ(names.size(), 35U);
}

// Throws if a command of the list could not be run.
void parse(const std::vector<std::string>& command) {
  if (command[0] != "./fsdp" || command[1] == "check") return;
  if (command[1] == "reproduce") {
    if (command[2] != "--full" && !row(command.at(3)).make) throw std::runtime_error(command[3]);
    return;
  }
  parse_train_options({command.begin() + 2, command.end()}, [](const auto&) {});
}

TEST(ReproduceRegistry, prints_commands_that_parse) {
  for (const Row& row : rows())
    EXPECT_NO_THROW(parse(words(row.command))) << row.command;
}

TEST(ReproduceRegistry, states_arithmetic_that_is_right) {
  const std::string text = kRows;
  const std::regex quotient(R"((\d+) / (\d+) = ([+-]?[\d.]+)( %)?)");
  for (std::sregex_iterator at(text.begin(), text.end(), quotient), end; at != end; ++at) {
    const bool percent = (*at)[4].matched;
    const double ratio = std::stod((*at)[1]) / std::stod((*at)[2]);
    const double expected = percent ? 100 * ratio - 100 : ratio;
    EXPECT_NEAR(std::stod((*at)[3]), expected, percent ? 0.051 : 0.0051) << at->str();
  }
  const double p = 7.5;
  for (const double gb : {16 * p, 4 * p + 12 * p / 64, 2 * p + 14 * p / 64, 16 * p / 64})
    EXPECT_CONTAINS(text, " | " + fixed(gb, 3) + " | ");
  EXPECT_CONTAINS(text, fixed(-0.95 * std::log(0.95) - 0.05 * std::log(0.05 / 16384), 3) + " nats");
}

TEST(Report, writes_the_tables_and_a_line_for_each_run) {
  const TemporaryFolder folder;
  const auto runs =
      nlohmann::ordered_json::array({{{"options", "--world 2"}, {"lines", {1, 2}}},
                                     {{"options", "--world 4"}, {"error", "no\nmemory"}}});
  Report{"report", "./fsdp reproduce", {{"Losses", {"W", "loss"}, {{{"2", "7.11"}, true}}, {}}}}
      .write(folder.path(), runs);
  std::ifstream file(folder.path() + "/report.json");
  std::vector<nlohmann::ordered_json> lines;
  for (std::string line; std::getline(file, line);)
    lines.push_back(nlohmann::ordered_json::parse(line));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_TRUE(lines[0]["machine"].contains("cores") && lines[0]["verdict"] == "ok");
  EXPECT_EQ(last_verdict(folder.path(), "report"), "ok");
  EXPECT_EQ(lines[1], runs[0]);
  EXPECT_EQ(lines[2], runs[1]);
}

TEST(ReproduceRegistry, lists_kind_command_and_last_verdict_in_100_columns) {
  const TemporaryFolder folder;
  Report{"memory", "", {{"A", {"W"}, {{{"2"}, true}}, {}}}}.write(folder.path(), {});
  Report{"wraps", "", {{"B", {"W"}, {{{"2"}, false}}, {}}}}.write(folder.path(), {});
  const std::string text = list(rows(), folder.path());
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
