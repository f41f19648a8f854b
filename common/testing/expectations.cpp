#include <gtest/gtest.h>
#include <testing/error_text.h>
#include <testing/expectations.h>
#include <testing/provenance.h>
#include <testing/wrong_observation.h>

#include <algorithm>
#include <limits>

namespace fsdp {
namespace {

void tell(const RankRun& run, const std::string& name, const std::string& table, const char* file,
          int line, const std::vector<const nlohmann::json*>& expected = {}) {
  ADD_FAILURE_AT(file, line) << '\n' << run.story(name, expected) << '"' << name << '"' << table;
}

// A table with a text for each rank. Ranks with the same text share one row.
class Rows {
 public:
  void add(int rank, const std::string& text) {
    const auto same = std::find(texts_.begin(), texts_.end(), text) - texts_.begin();
    if (same == static_cast<int64_t>(texts_.size())) {
      texts_.push_back(text);
      ranks_.push_back("rank " + std::to_string(rank));
    } else {
      ranks_[same] =
          "ranks" + ranks_[same].substr(ranks_[same].find(' ')) + ", " + std::to_string(rank);
    }
  }
  bool empty() const { return texts_.empty(); }
  std::string table() const {
    std::string table;
    for (size_t i = 0; i < texts_.size(); ++i)
      table += "\n  " + ranks_[i] + ": " + texts_[i];
    return table;
  }

 private:
  std::vector<std::string> texts_, ranks_;
};

// Compares what rank r observed as `name` with expected[r], for each r, and fails the test if one
// differs. If expected[r] is null, the observation of rank r is not compared, only printed.
void compare(const RankRun& run, const std::string& name,
             const std::vector<const nlohmann::json*>& expected, const char* file, int line) {
  bool equal = true;
  Rows rows;
  for (int rank = 0; rank < run.world_size(); ++rank) {
    const nlohmann::json* wanted = expected[rank];
    if (wanted == nullptr && !run.observed(rank, name)) continue;
    const nlohmann::json& actual = run.at(rank, name, file, line);
    const std::string wrong = wanted == nullptr ? "" : difference(actual, *wanted);
    if (equal && !wrong.empty()) keep_wrong(run, rank, name, *wanted);
    equal &= wrong.empty();
    rows.add(rank, wrong.empty() ? summary(actual) : wrong);
  }
  if (!equal) tell(run, name, rows.table(), file, line, expected);
}

// Checks the elements that a rank observed of a mean over ranks. Returns the index and a
// description of the first wrong element: one that belongs to a parameter and is not the mean, or
// to padding and is not zero. The description is "" if no element is wrong. The index is -1 if the
// number of elements is wrong. `places` comes from the test, because places that a rank reports
// could leave out elements.
std::pair<int64_t, std::string> wrong_mean(const ObservedTensor& actual, const Places& places,
                                           int world_size) {
  if (actual.numel() != places.shard_numel) {
    return {-1, "has " + std::to_string(actual.numel()) + " elements, expected " +
                    std::to_string(places.shard_numel)};
  }
  for (int64_t i = 0; i < actual.numel(); ++i) {
    const bool padding = !places.in_parameter(i);
    const double value = actual.value(i);
    const auto expected = padding ? 0 : static_cast<double>(provenance::mean(world_size));
    if (value == expected) continue;
    const std::string why = padding ? "padding is not zero" : provenance::decode(value, world_size);
    return {i, places.text(i) + ": is " + actual.text(i) + ", expected " +
                   std::to_string(static_cast<int64_t>(expected)) + ": " + why};
  }
  return {};
}

// Limits for the bytes that the ranks observed with RetainedMemory::taken(). expect_held() adds the
// bytes of all `kinds`. It fails if there are several ranks and one of them holds `limit` bytes or
// more, or if all ranks together hold fewer than `least`.
struct Held {
  std::vector<std::string> kinds;  // keys of RetainedMemory::taken(): "tensors", "besides"
  std::string where;
  int64_t limit{std::numeric_limits<int64_t>::max()}, least{};
  std::string why_less{}, why_least{};
};

void expect_held(const RankRun& run, const std::string& name, const Held& held, const char* file,
                 int line) {
  bool wrong = false;
  int64_t sum = 0;
  Rows rows;
  for (int rank = 0; rank < run.world_size(); ++rank) {
    if (!run.observed(rank, name)) continue;
    const nlohmann::json& taken = run.at(rank, name, file, line);
    int64_t bytes = 0;
    for (const std::string& kind : held.kinds)
      bytes += taken.at(kind).get<int64_t>();
    sum += bytes;
    const bool too_many = bytes >= held.limit && run.world_size() > 1;
    if (too_many) keep_wrong(run, rank, name, -1, "holds " + std::to_string(bytes) + " bytes");
    wrong |= too_many;
    rows.add(rank, "holds " + std::to_string(bytes) + " bytes " + held.where +
                       (too_many ? ", expected fewer than " + std::to_string(held.limit) + ": " +
                                       held.why_less
                                 : ""));
  }
  std::string table = rows.table();
  if (sum < held.least) {
    wrong = true;
    table += "\n  all ranks: hold " + std::to_string(sum) + " bytes " + held.where +
             ", expected at least " + std::to_string(held.least) + ": " + held.why_least;
  }
  if (wrong) tell(run, name, table, file, line);
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

void expect_on_all_ranks(const RankRun& run, const Expected& expected, const char* file, int line) {
  for (const auto& [name, value] : expected)
    expect_on_all_ranks(run, name, value, file, line);
}

void expect_as(const RankRun& run, const RankRun& expected, const char* file, int line) {
  for (const std::string& name : expected.names(0))
    expect_on_all_ranks(run, name, expected.at(0, name), file, line);
}

void expect_on_each_rank(const RankRun& run, const std::string& name,
                         const ExpectedOfRank& expected, const char* file, int line) {
  std::vector<nlohmann::json> values;
  for (int rank = 0; rank < run.world_size(); ++rank)
    values.push_back(expected(rank));
  std::vector<const nlohmann::json*> by_rank;
  for (const nlohmann::json& value : values)
    by_rank.push_back(&value);
  compare(run, name, by_rank, file, line);
}

void expect_part_of(const RankRun& run, const std::string& name, int64_t whole, const char* file,
                    int line) {
  const Held tensors{
      .kinds = {"tensors"},
      .where = "in tensors",
      .least = whole - whole / 8,
      .why_least = "together the ranks hold the whole",
  };
  expect_held(run, name, tensors, file, line);
  const Held all{
      .kinds = {"tensors", "besides"},
      .where = "in tensors and besides",
      .limit = whole,
      .why_less = "a part of the whole",
  };
  expect_held(run, name, all, file, line);
}

void expect_no_copies(const RankRun& run, const std::string& name, int64_t whole, const char* file,
                      int line) {
  const Held held{
      .kinds = {"besides"},
      .where = "besides tensors",
      .limit = whole / 8 * 3 + 1,
      .why_less = "a rank must not keep a copy of what other ranks own, in any memory",
  };
  expect_held(run, name, held, file, line);
}

void expect_mean_over_ranks(const RankRun& run, const std::string& name, const PlacesOfRank& places,
                            const char* file, int line) {
  Rows rows;
  for (int rank = 0; rank < run.world_size(); ++rank) {
    const ObservedTensor actual = run.tensor(rank, name, file, line);
    const auto& [element, wrong] = wrong_mean(actual, places(rank), run.world_size());
    if (wrong.empty()) continue;
    keep_wrong(run, rank, name, element, wrong);
    rows.add(rank, wrong);
  }
  if (!rows.empty()) tell(run, name, rows.table(), file, line);
}

void expect_same_on_all_ranks(const RankRun& run, const std::string& name, const char* file,
                              int line) {
  expect_on_all_ranks(run, name, run.at(0, name, file, line), file, line);
}

void expect_error(const RankRun& run, const std::string& name,
                  const std::vector<std::string>& words, const char* file, int line) {
  Rows rows;
  for (int rank = 0; rank < run.world_size(); ++rank) {
    const auto said = run.at(rank, name, file, line).get<std::string>();
    std::string lacking;
    for (const std::string& word : words)
      if (said.find(word) == std::string::npos)
        lacking += (lacking.empty() ? "\"" : ", \"") + word + '"';
    if (lacking.empty()) continue;
    keep_wrong(run, rank, name, -1, "the error lacks " + lacking + "; it says: " + said);
    rows.add(rank, said == kNothingThrown ? said + ", expected an error with " + lacking
                                          : "the error lacks " + lacking + "; it says: " + said);
  }
  if (!rows.empty()) tell(run, name, rows.table(), file, line);
}

void expect_error_says(const std::string& error, const std::string& word, const char* file,
                       int line) {
  if (error.find(word) != std::string::npos) return;
  ADD_FAILURE_AT(file, line) << "the error lacks \"" << word << "\"; it says: "
                             << (error.empty() ? "nothing" : without_stacks(error));
}

}  // namespace fsdp
