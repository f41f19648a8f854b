#include <gtest/gtest.h>
#include <reproduce/report.h>

#include <common/temporary_folder.h>

#include <fstream>
#include <vector>

namespace fsdp {
namespace {

TEST(Report, the_json_of_a_report_has_a_verdict_and_a_line_for_each_run) {
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
  EXPECT_EQ(last_verdict({folder.path()}, "report"), "ok");
  EXPECT_EQ(lines[1], runs[0]);
  EXPECT_EQ(lines[2], runs[1]);
}

TEST(Report, last_verdict_returns_the_verdict_in_the_first_of_its_folders_that_has_a_report) {
  const TemporaryFolder first, second;
  EXPECT_EQ(last_verdict({first.path(), second.path()}, "a"), "not run");
  Report{"a", "", {{"A", {"W"}, {{{"2"}, true}}, {}}}}.write(second.path(), {});
  EXPECT_EQ(last_verdict({first.path(), second.path()}, "a"), "ok");
  Report{"a", "", {{"A", {"W"}, {{{"2"}, false}}, {}}}}.write(first.path(), {});
  EXPECT_EQ(last_verdict({first.path(), second.path()}, "a"), "NOT OK");
}

}  // namespace
}  // namespace fsdp
