#include <reproduce/pairwise_cover.h>

#include <optional>
#include <set>
#include <utility>

namespace fsdp {
namespace {

// One value of one factor of a table: {index of the factor, index of the value among its values}.
using Value = std::pair<size_t, size_t>;
// Values of two factors. The value of the factor with the smaller index comes first.
using Pair = std::pair<Value, Value>;

std::set<Pair> all_pairs(const std::vector<size_t>& counts) {
  std::set<Pair> pairs;
  for (size_t i = 0; i < counts.size(); ++i) {
    for (size_t j = i + 1; j < counts.size(); ++j) {
      for (size_t a = 0; a < counts[i]; ++a) {
        for (size_t b = 0; b < counts[j]; ++b)
          pairs.insert({{i, a}, {j, b}});
      }
    }
  }
  return pairs;
}

using PartialRow = std::vector<std::optional<size_t>>;

// Sets one more factor of the row. Chooses the factor and the value that form the most pairs of
// `missing` with the values that the row has already; of several such values, the one that is in
// the most pairs of `missing`.
void fill_best(PartialRow& row, const std::vector<size_t>& counts, const std::set<Pair>& missing) {
  Value best{};
  std::optional<std::pair<size_t, size_t>> most;
  for (size_t factor = 0; factor < row.size(); ++factor) {
    for (size_t number = 0; !row[factor] && number < counts[factor]; ++number) {
      const Value value(factor, number);
      size_t met = 0, all = 0;
      for (const auto& [a, b] : missing) {
        if (a != value && b != value) continue;
        const auto& [other, wanted] = a == value ? b : a;
        met += row[other] == wanted;
        ++all;
      }
      if (most && std::pair(met, all) <= *most) continue;
      most = {met, all};
      best = value;
    }
  }
  row[best.first] = best.second;
}

}  // namespace

std::vector<std::vector<size_t>> pairwise_cover(const std::vector<size_t>& counts) {
  std::vector<std::vector<size_t>> rows;
  std::set<Pair> missing = all_pairs(counts);
  while (!missing.empty()) {
    const auto [a, b] = *missing.begin();
    PartialRow row(counts.size());
    row[a.first] = a.second;
    row[b.first] = b.second;
    for (size_t filled = 2; filled < counts.size(); ++filled)
      fill_best(row, counts, missing);
    std::vector<size_t> values;
    for (size_t i = 0; i < row.size(); ++i) {
      values.push_back(*row[i]);
      for (size_t j = 0; j < i; ++j)
        missing.erase({{j, *row[j]}, {i, *row[i]}});
    }
    rows.push_back(values);
  }
  return rows;
}

}  // namespace fsdp
