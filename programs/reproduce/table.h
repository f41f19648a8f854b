#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

constexpr size_t kColumns = 100;  // of notes
constexpr double kGiB = 1 << 30;
constexpr double kTolerance = 1e-6;  // relative: of losses and sums, from published ones

// One line of a table. `ok` has no value where there is nothing to be right or wrong.
struct Line {
  std::vector<std::string> cells;
  std::optional<bool> ok;
};

// A table of the report; its last column says which lines are ok.
struct Table {
  std::string title;
  std::vector<std::string> header;  // without the last column
  std::vector<Line> lines;
  std::vector<std::string> notes;  // sentences below it

  // Adds what `make` returns, or calls it to add lines. If it throws, adds a line of `cells` that
  // is not ok, and what() as a note.
  void add(std::vector<std::string> cells, const std::function<Line()>& make);
  void add_lines(std::vector<std::string> cells, const std::function<void()>& make);

  bool ok() const;               // no line is not ok
  std::string markdown() const;  // aligned, so that it is plain text as well; notes in 100 columns
};

// "7.11157274": with `digits` decimals.
std::string fixed(double value, int digits);

// "1e-08", or "0".
std::string scientific(double value);

// |value - expected| / |expected|
double relative_difference(double value, double expected);

}  // namespace fsdp
