#include <reproduce/pairwise.h>

#include <optional>
#include <set>
#include <utility>

namespace fsdp {
namespace {

using Value = std::pair<size_t, size_t>;  // factor, value
using Pair = std::pair<Value, Value>;     // the smaller factor first

Pair ordered(Value a, Value b) {
  return a < b ? Pair(a, b) : Pair(b, a);
}

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

// How many of the `missing` pairs the row gains by `value`.
size_t gain(const PartialRow& row, Value value, const std::set<Pair>& missing) {
  size_t count = 0;
  for (size_t other = 0; other < row.size(); ++other) {
    if (row[other]) count += missing.count(ordered({other, *row[other]}, value));
  }
  return count;
}

// Gives the row the value, of any factor without one, that gains most; among equals the one that is
// in the most missing pairs.
void fill_best(PartialRow& row, const std::vector<size_t>& counts, const std::set<Pair>& missing) {
  Value best{};
  std::pair<size_t, size_t> most{};
  bool found = false;
  for (size_t factor = 0; factor < row.size(); ++factor) {
    if (row[factor]) continue;
    for (size_t value = 0; value < counts[factor]; ++value) {
      size_t ahead = 0;
      for (const auto& [a, b] : missing)
        ahead += a == Value(factor, value) || b == Value(factor, value);
      const std::pair<size_t, size_t> score{gain(row, {factor, value}, missing), ahead};
      if (found && score <= most) continue;
      found = true;
      most = score;
      best = {factor, value};
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
        missing.erase(ordered({j, *row[j]}, {i, *row[i]}));
    }
    rows.push_back(values);
  }
  return rows;
}

}  // namespace fsdp
