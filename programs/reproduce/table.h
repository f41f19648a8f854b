#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

constexpr size_t kColumns = 100;  // width of a note

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

}  // namespace fsdp
