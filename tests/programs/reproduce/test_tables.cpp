#include <reproduce/pairwise.h>
#include <reproduce/tables.h>

#include <gtest/gtest.h>

#include <common/expect_text.h>

#include <fstream>
#include <map>

namespace fsdp {
namespace {

using Json = nlohmann::json;

std::string value_of(const TrainOptions& options, const std::string& name) {
  for (size_t i = 0; i + 1 < options.size(); ++i) {
    if (options[i] == name) return options[i + 1];
  }
  return "";
}

// A train program that gives every mode the numbers that are expected, except for what `spoil`
// does.
class FakeTrain {
 public:
  using Spoil = std::function<void(const TrainOptions&, TrainResult&)>;
  explicit FakeTrain(Spoil spoil = nullptr) : spoil_(std::move(spoil)) {}

  const TrainResult& operator()(const TrainOptions& options) {
    TrainResult made = result(options);
    if (spoil_) spoil_(options, made);
    return results_.try_emplace(options, std::move(made)).first->second;
  }

  const std::map<TrainOptions, TrainResult>& results() const { return results_; }

 private:
  static TrainResult result(const TrainOptions& options) {
    TrainResult result;
    for (int step = 0; step < 5; ++step) {
      const double loss = step == 0 ? 7.1115727425 : 7.0903296471;
      result.steps.push_back({{"step", step}, {"loss", loss}, {"grad_norm", nullptr}});
    }
    const std::string given = value_of(options, "--batch");
    const int batch = given.empty() ? 32 : std::stoi(given);
    const Json live{{"gathered", {{"predicted", 100}, {"measured", 100}}},
                    {"gradients", {{"predicted", 0}, {"measured", 0}}},
                    {"rest", {{"predicted", nullptr}, {"measured", 2000 + 8 * 10 * batch}}}};
    const bool fsdp = value_of(options, "--mode") == "fsdp";
    result.last = {{"final", true},
                   {"param_sum", 2286.522560},
                   {"param_sum_change", 0.369358},
                   {"param_sha256", "abcdef0123456789-" + value_of(options, "--world")},
                   {"peak_bytes", {fsdp ? 900 : 1000}},
                   {"live_bytes", {{"forward", live}, {"backward", live}, {"optimizer", live}}},
                   {"live_bytes_mismatches", 0},
                   {"batch", batch},
                   {"seq", 9},
                   {"comm_bytes", {{"all_gather", 24}}},
                   {"comm_bytes_predicted", {{"all_gather", 24}}},
                   {"units",
                    {{{"padded", 64}, {"root", true}},
                     {{"padded", 640}, {"root", false}},
                     {{"padded", 640}, {"root", false}},
                     {{"padded", 640}, {"root", false}},
                     {{"padded", 640}, {"root", false}}}}};
    return result;
  }

  Spoil spoil_;
  std::map<TrainOptions, TrainResult> results_;
};

bool is_fsdp(const TrainOptions& options) {
  return value_of(options, "--mode") == "fsdp";
}

std::vector<Table> all_tables(FakeTrain& fake) {
  const Train train = [&](const TrainOptions& options) -> const TrainResult& {
    return fake(options);
  };
  std::vector<Table> tables = memory_tables(train);
  tables.push_back(equivalence_table(train));
  tables.push_back(traffic_table(train));
  tables.push_back(matrix_table(train));
  return tables;
}

// The lines that are not ok when fsdp's results are spoilt, over all tables.
size_t failures_when(const std::function<void(TrainResult&)>& spoil) {
  FakeTrain fake([&](const TrainOptions& options, TrainResult& result) {
    if (is_fsdp(options)) spoil(result);
  });
  size_t count = 0;
  for (const Table& table : all_tables(fake))
    for (const Line& line : table.lines)
      count += line.ok == false;
  return count;
}

TEST(ReproduceTables, are_ok_if_every_result_is_as_expected) {
  FakeTrain fake;
  for (const Table& table : all_tables(fake)) {
    EXPECT_TRUE(table.ok()) << table.markdown();
    EXPECT_GT(table.lines.size(), 2U) << table.title;
  }
}

// A result that is spoilt, and in how many lines that shows.
TEST(ReproduceTables, mark_every_line_of_a_wrong_result) {
  const size_t of_matrix = pairwise_cover({4, 2, 2, 2, 2, 2, 3, 4, 2, 2, 2}).size();
  const std::vector<std::pair<size_t, std::function<void(TrainResult&)>>> cases{
      {4 + of_matrix, [](TrainResult& r) { r.last["param_sha256"] = "0"; }},
      {4, [](TrainResult& r) { r.last["param_sum"] = 2286.5260; }},
      {4, [](TrainResult& r) { r.last["param_sum_change"] = 0.3698; }},
      {4 + of_matrix, [](TrainResult& r) { r.steps[4]["loss"] = 7.09034; }},
      {3, [](TrainResult& r) { r.last["live_bytes"]["backward"]["gradients"]["measured"] = 1; }},
      {3,
       [](TrainResult& r) {
         r.last["live_bytes"]["forward"]["rest"]["measured"] = 2000 + 8 * 10 * 32 + 8;
       }},
      {3, [](TrainResult& r) { r.last["live_bytes_mismatches"] = 1; }},
      {6, [](TrainResult& r) { r.last["comm_bytes"]["all_gather"] = 25; }},
      {6, [](TrainResult& r) { r.last["comm_bytes"]["reduce_scatter"] = 1; }},
      {3, [](TrainResult& r) {
         r.last["peak_bytes"] = {900, 1000};
       }}};
  for (size_t i = 0; i < cases.size(); ++i)
    EXPECT_EQ(failures_when(cases[i].second), cases[i].first) << "case " << i;
}

TEST(ReproduceTables, say_why_fsdp_needs_more_than_ddp) {
  FakeTrain fake([](const TrainOptions& options, TrainResult& result) {
    if (!is_fsdp(options)) return;
    result.last["peak_bytes"] = {value_of(options, "--world") == "8" ? 900 : 2000};
    result.last["units"] = {{{"padded", 640}, {"root", true}}, {{"padded", 640}, {"root", false}}};
  });
  const auto tables =
      memory_tables([&](const auto& options) -> const TrainResult& { return fake(options); });
  EXPECT_TRUE(tables.back().ok());
  EXPECT_NE(tables.back().markdown().find("At W = 2 FSDP is not below DDP"), std::string::npos);
}

TEST(ReproduceTables, show_a_failed_run_with_its_reason) {
  FakeTrain fake([](const TrainOptions& options, TrainResult&) {
    if (is_fsdp(options)) throw std::runtime_error("rank 1 was killed by signal 9");
  });
  for (const Table& table : all_tables(fake)) {
    EXPECT_FALSE(table.ok()) << table.title;
    EXPECT_NE(table.markdown().find("rank 1 was killed by signal 9"), std::string::npos);
  }
}

TEST(ReproduceMatrix, covers_every_pair_of_values_of_every_pair_of_factors) {
  const std::vector<size_t> counts{4, 2, 3, 1, 5};
  const auto rows = pairwise_cover(counts);
  for (size_t i = 0; i < counts.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      for (size_t a = 0; a < counts[i]; ++a) {
        for (size_t b = 0; b < counts[j]; ++b) {
          const bool met = std::any_of(rows.begin(), rows.end(),
                                       [&](const auto& row) { return row[i] == a && row[j] == b; });
          EXPECT_TRUE(met) << "factors " << j << " and " << i << ", values " << b << " and " << a;
        }
      }
    }
  }
  EXPECT_LE(rows.size(), 30U);
}

// Eight parts give one hash; six give one for each number of ranks, and of ranks of a replica.
void hash_by_parts(const TrainOptions& options, TrainResult& result) {
  const std::string parts = value_of(options, "--parts");
  const std::string ranks = value_of(options, "--world") + '/' + value_of(options, "--shard-size");
  result.last["param_sha256"] = parts == "8" ? parts : parts + ranks;
}

size_t failures_of_arrangements(const FakeTrain::Spoil& spoil) {
  FakeTrain fake([&](const TrainOptions& options, TrainResult& result) {
    hash_by_parts(options, result);
    if (value_of(options, "--mode") == "fsdp" && value_of(options, "--world") == "4")
      spoil(options, result);
  });
  const Table table =
      arrangements_table([&](const auto& options) -> const TrainResult& { return fake(options); });
  return static_cast<size_t>(std::count_if(table.lines.begin(), table.lines.end(),
                                           [](const Line& line) { return !line.ok.value(); }));
}

TEST(ReproduceArrangements, fails_on_another_hash_or_bytes_that_were_not_predicted) {
  EXPECT_EQ(failures_of_arrangements([](const auto&, TrainResult&) {}), 0U);
  for (const auto& spoil : std::vector<std::function<void(Json&)>>{
           [](Json& last) { last["param_sha256"] = "another"; },
           [](Json& last) { last["live_bytes_mismatches"] = 1; },
           [](Json& last) {
             last["comm_bytes"] = {{"all_gather", 25}};
           }}) {
    EXPECT_GE(failures_of_arrangements([&](const auto&, TrainResult& r) { spoil(r.last); }), 2U);
  }
}

// A shell script in the place of the train program.
std::filesystem::path script(const std::string& body) {
  const auto path = std::filesystem::path(testing::TempDir()) / "fake_train";
  std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

TEST(TrainRuns, run_each_set_of_options_once_and_read_its_file) {
  const auto count = std::filesystem::path(testing::TempDir()) / "fake_train_count";
  std::filesystem::remove(count);
  TrainRuns runs(script("echo run >> '" + count.string() +
                        "'; for file; do :; done\n"
                        "echo '{\"final\":true,\"param_sha256\":\"'$2'\"}' > \"$file\""));
  EXPECT_EQ(runs({"--world", "3"}).hash(), "3");
  EXPECT_EQ(runs({"--world", "4"}).hash(), "4");
  EXPECT_EQ(runs({"--world", "3"}).hash(), "3");
  EXPECT_EQ(std::filesystem::file_size(count), 2 * std::string("run\n").size());
  EXPECT_EQ(runs.json().size(), 2U);
}

TEST(TrainRuns, report_the_last_line_of_a_program_that_fails_and_leave_no_files) {
  std::filesystem::path folder;
  {
    TrainRuns runs(script("echo some output; echo 'fsdp train: rank 1 was lost' >&2; exit 1"));
    folder = runs.folder();
    for (int attempt = 0; attempt < 2; ++attempt)
      EXPECT_EQ(error_of<std::runtime_error>([&] {
                  runs({"--world", "2"});
                }),
                "fsdp train: rank 1 was lost");
    EXPECT_TRUE(std::filesystem::exists(folder));
  }
  EXPECT_FALSE(std::filesystem::exists(folder));
}

}  // namespace
}  // namespace fsdp
