#include <reproduce/described.h>
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
    result.last = {{"final", true},
                   {"param_sum", 2286.522560},
                   {"param_sum_change", 0.369358},
                   {"param_sha256", "abcdef0123456789-" + value_of(options, "--world")},
                   {"live_bytes_mismatches", 0},
                   {"comm_bytes", {{"all_gather", 24}}},
                   {"comm_bytes_predicted", {{"all_gather", 24}}}};
    return result;
  }

  Spoil spoil_;
  std::map<TrainOptions, TrainResult> results_;
};

Tables tables_of(const std::string& lines, const Train& train) {
  return described_tables(whole_lines(lines), train,
                          [](const std::string& command) { return "head 1\nshm 2 " + command; });
}

// The lines of the equivalence, and of one process and FSDP in every two of two factors.
size_t failures(FakeTrain& fake) {
  const Train train = [&](const auto& options) -> const auto& {
    return fake(options);
  };
  Tables tables = tables_of(
      "= pairs\n$ --model small\nx W | 2: --world 2 | 4: --world 4\ny pref | on: | off: --prefetch off\n"
      "p --mode fsdp | --mode single | --mode ddp\n",
      train);
  tables.push_back(equivalence_table(train));
  size_t failures = 0;
  for (const Table& table : tables)
    failures += static_cast<size_t>(std::ranges::count(table.lines, false, &Line::ok));
  return failures;
}

TEST(ReproduceTables, mark_every_line_of_a_wrong_result) {
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

TEST(ReproduceTables, are_as_they_are_described) {
  FakeTrain fake([](const TrainOptions& options, TrainResult& result) {
    if (value_of(options, "--seed") == "4") throw std::runtime_error("rank 1 was lost");
    if (value_of(options, "--seed") == "5") result.last["param_sha256"] = "other";
  });
  const std::string lines =
      "= Title\n$ --world 2\n% A --seed 3\n: run, of; first loss, sha256; theirs\n"
      "* one, a | $A | 7.2\n- two, b | --seed 5\n! three, c | --seed 4\n. four, d | 1 | 2\n"
      "@ five, x | bench | shm 2 | 2\n* six, f | --seed 4\n> A note\n of two lines\n";
  const auto made = tables_of(
      lines, [&](const auto& o) -> const auto& { return fake(o); });
  EXPECT_EQ(made.at(0).markdown(),
            "## Title\n\n"
            "| run   | of | first loss | sha256   | theirs |        |\n"
            "|-------|----|------------|----------|--------|--------|\n"
            "| one   | a  |     7.1116 | abcdef01 |    7.2 | ok     |\n"
            "| two   | b  |     7.1116 | other    |        | NOT OK |\n"
            "| three | c  |            |          |        |        |\n"
            "| four  | d  |          1 |        2 |        |        |\n"
            "| five  | x  | bench      |          |        |        |\n"
            "| six   | f  |            |          |        | NOT OK |\n"
            "\nthree, c: rank 1 was lost\n\nsix f: rank 1 was lost\n\nA note of two lines\n");
}

TEST(ReproduceTables, read_only_what_is_kept_of_a_run) {
  FakeTrain fake;
  EXPECT_EQ(failures(fake), 0U);
  FakeTrain kept([&](const TrainOptions& options, TrainResult& result) {
    const TrainResult& first = fake.results().at(options);
    result.last = Json(first.last.kept());
    for (size_t step = 0; step < first.steps.size(); ++step)
      result.steps[step] = Json(first.steps[step].kept());
    EXPECT_FALSE(result.last.contains("final")) << "nobody reads it";
  });
  EXPECT_EQ(failures(kept), 0U);
}

TEST(PairwiseCover, has_every_pair_of_values_of_every_pair_of_factors) {
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
  EXPECT_EQ(runs.take_json().size(), 2U);
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
