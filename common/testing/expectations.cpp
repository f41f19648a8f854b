#include <testing/multi_rank.h>

namespace fsdp {
namespace {

// Compares the observations of the ranks with what is expected of them; expected[r] is null where
// rank r is only to be shown.
void compare(const RankRun& run, const std::string& name,
             const std::vector<const nlohmann::json*>& expected, const char* file, int line) {
  bool equal = true;
  std::string table;
  for (int rank = 0; rank < run.world_size(); ++rank) {
    const nlohmann::json* wanted = expected[rank];
    if (wanted == nullptr && !run.observed(rank, name)) continue;
    const nlohmann::json& actual = run.at(rank, name, file, line);
    const std::string wrong = wanted == nullptr ? "" : difference(actual, *wanted);
    equal &= wrong.empty();
    table += "\n  rank " + std::to_string(rank) + ": " + (wrong.empty() ? summary(actual) : wrong);
  }
  if (!equal) ADD_FAILURE_AT(file, line) << '"' << name << '"' << table;
}

}  // namespace

void expect_on_rank(const RankRun& run, int rank, const std::string& name,
                    const nlohmann::json& expected, const char* file, int line) {
  std::vector<const nlohmann::json*> by_rank(run.world_size());
  by_rank.at(rank) = &expected;
  compare(run, name, by_rank, file, line);
}

void expect_on_all_ranks(const RankRun& run, const std::string& name,
                         const nlohmann::json& expected, const char* file, int line) {
  compare(run, name, std::vector(run.world_size(), &expected), file, line);
}

void expect_same_on_all_ranks(const RankRun& run, const std::string& name, const char* file,
                              int line) {
  expect_on_all_ranks(run, name, run.at(0, name, file, line), file, line);
}

}  // namespace fsdp
