#include <gtest/gtest.h>
#include <reproduce/equivalence_table.h>
#include <reproduce/pairs_table.h>

#include <algorithm>

#include "fake_train.h"
#include "rows_of_text.h"

namespace fsdp {
namespace {

const char* const kPairs = R"(
options = "--model small"
comparisons = [["--mode fsdp", "--mode single", "--mode ddp"]]
notes = ["A note."]
[[row.table.factor]]
name = "W"
applies_to = "every run"
values = [["2", "--world 2"], ["4", "--world 4"]]
[[row.table.factor]]
name = "pref"
applies_to = "first run"
values = [["on", ""], ["off", "--prefetch off"]]
)";

// Returns how many lines are not ok in the table of kPairs and in the equivalence table together.
size_t failures(FakeTrain& fake) {
  const Train train = [&](const auto& options) -> const auto& {
    return fake(options);
  };
  size_t failures = 0;
  for (const Table& table : {run_pairs(table_of_text(kPairs), train), equivalence_table(train)})
    failures += static_cast<size_t>(std::ranges::count(table.lines, false, &Line::ok));
  return failures;
}

TEST(PairsTable, a_pairs_table_has_a_line_for_each_pair_of_factor_values) {
  FakeTrain fake;
  const Table table = run_pairs(
      table_of_text(kPairs), [&](const auto& options) -> const auto& { return fake(options); });
  EXPECT_EQ(table.markdown(),
            "## Title\n\n"
            "| W | pref | sha256   |    |\n"
            "|---|------|----------|----|\n"
            "| 2 | on   | abcdef01 | ok |\n"
            "| 2 | off  | abcdef01 | ok |\n"
            "| 4 | on   | abcdef01 | ok |\n"
            "| 4 | off  | abcdef01 | ok |\n"
            "\nA note.\n");
  std::vector<std::string> runs;
  for (const auto& [options, result] : fake.results())
    runs.push_back(joined(options));
  EXPECT_EQ(runs, (std::vector<std::string>{
                      "--model small --world 2 --mode ddp", "--model small --world 2 --mode fsdp",
                      "--model small --world 2 --mode single",
                      "--model small --world 2 --prefetch off --mode fsdp",
                      "--model small --world 4 --mode ddp", "--model small --world 4 --mode fsdp",
                      "--model small --world 4 --mode single",
                      "--model small --world 4 --prefetch off --mode fsdp"}));
}

TEST(PairsTable, every_line_of_the_pairs_table_with_a_wrong_result_is_not_ok) {
  const std::vector<std::pair<size_t, std::function<void(TrainResult&)>>> cases{
      {0, [](TrainResult&) {}},
      {4 + 4, [](TrainResult& r) { r.last["param_sha256"] = "0"; }},
      {4, [](TrainResult& r) { r.last["param_sum"] = 2286.5260; }},
      {4, [](TrainResult& r) { r.last["param_sum_change"] = 0.3698; }},
      {4, [](TrainResult& r) { r.steps[4]["loss"] = 7.09034; }},
      {4, [](TrainResult& r) { r.last["live_bytes_mismatches"] = 1; }},
      {4, [](TrainResult& r) { r.last["comm_bytes"]["reduce_scatter"] = 1; }}};
  for (size_t i = 0; i < cases.size(); ++i) {
    FakeTrain fake([&](const TrainOptions& options, TrainResult& result) {
      if (value_of(options, "--mode") == "fsdp") cases[i].second(result);
    });
    EXPECT_EQ(failures(fake), cases[i].first) << "case " << i;
  }
}

TEST(PairsTable,
     the_results_that_are_kept_of_a_run_have_all_values_that_the_pairs_and_line_tables_read) {
  FakeTrain fake;
  EXPECT_EQ(failures(fake), 0U);
  FakeTrain kept([&](const TrainOptions& options, TrainResult& result) {
    const TrainResult& first = fake.results().at(options);
    result.last = nlohmann::json(first.last.kept());
    for (size_t step = 0; step < first.steps.size(); ++step)
      result.steps[step] = nlohmann::json(first.steps[step].kept());
    EXPECT_FALSE(result.last.contains("final")) << "kept although no table reads it";
  });
  EXPECT_EQ(failures(kept), 0U);
}

}  // namespace
}  // namespace fsdp
