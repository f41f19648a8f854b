#include <gtest/gtest.h>
#include <options/options.h>
#include <reproduce/number_text.h>
#include <reproduce/option_text.h>
#include <reproduce/read_rows.h>

#include <common/expect_text.h>

#include <algorithm>
#include <cmath>
#include <regex>

namespace fsdp {

extern const char* const kTablesText;  // the text of tables.toml

namespace {

const std::vector<Row>& rows() {
  return rows_of_tables_toml().rows;
}

const Row& row(const std::string& name) {
  return *std::ranges::find_if(rows(), [&](const Row& row) { return row.name == name; });
}

TEST(TablesToml, each_row_of_tables_toml_is_read_and_has_tables_unless_it_never_runs) {
  const std::string text = kTablesText;
  size_t headings = 0;
  for (auto at = text.find("\n[[row]]\n"); at != text.npos; at = text.find("\n[[row]]\n", at + 1))
    ++headings;
  EXPECT_GE(headings, 35U);
  ASSERT_EQ(rows().size(), headings);
  for (const Row& row : rows()) {
    EXPECT_EQ(row.number, static_cast<int>(&row - rows().data()) + 1);
    EXPECT_EQ(row.has_tables(), row.when != "never") << row.name;
  }
}

// Throws if `command`, which the list of rows prints, trains with invalid options, or if it
// reproduces a row without tables.
void parse(const std::vector<std::string>& command) {
  if (command[0] != "./fsdp" || command[1] == "check") return;
  if (command[1] == "reproduce") {
    if (command[2] != "--full" && !row(command.at(3)).has_tables())
      throw std::runtime_error(command[3]);
    return;
  }
  parse_train_options({command.begin() + 2, command.end()}, [](const auto&) {});
}

TEST(TablesToml, the_commands_that_tables_toml_prints_can_be_parsed) {
  for (const Row& row : rows())
    EXPECT_NO_THROW(parse(words(row.command))) << row.command;
}

TEST(TablesToml, every_quotient_that_the_text_of_tables_toml_states_is_right) {
  std::string text = kTablesText;
  // A quotient can continue in the next line of the text.
  std::ranges::replace(text, '\n', ' ');
  const std::regex quotient(R"((\d+) / (\d+) = ([+-]?[\d.]+)( %)?)");
  int checked = 0;
  for (std::sregex_iterator at(text.begin(), text.end(), quotient), end; at != end; ++at) {
    ++checked;
    const bool percent = (*at)[4].matched;
    const double ratio = std::stod((*at)[1]) / std::stod((*at)[2]);
    const double expected = percent ? 100 * ratio - 100 : ratio;
    EXPECT_NEAR(std::stod((*at)[3]), expected, percent ? 0.051 : 0.0051) << at->str();
  }
  EXPECT_GE(checked, 9);
  const double p = 7.5;
  for (const double gb : {16 * p, 4 * p + 12 * p / 64, 2 * p + 14 * p / 64, 16 * p / 64})
    EXPECT_CONTAINS(text, '"' + fixed(gb, 3) + '"');
  EXPECT_CONTAINS(text, fixed(-0.95 * std::log(0.95) - 0.05 * std::log(0.05 / 16384), 3) + " nats");
}

}  // namespace
}  // namespace fsdp
