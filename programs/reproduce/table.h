#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

constexpr size_t kColumns = 100;  // width of a note

// One line of a table. `ok` has no value if the line has no verdict.
struct Line {
  std::vector<std::string> cells;
  std::optional<bool> ok;
};

// A table of the report. Its last column shows which lines are ok.
struct Table {
  std::string title;
  std::vector<std::string> header;  // without the last column
  std::vector<Line> lines;
  std::vector<std::string> notes;  // paragraphs below the table

  // Adds the line that `make` returns. If `make` throws, adds a line of `cells` that is not ok, and
  // the error as a note.
  void add(std::vector<std::string> cells, const std::function<Line()>& make);
  // Calls `make`, which adds lines itself. If `make` throws, adds a line and a note as add() does.
  void add_lines(std::vector<std::string> cells, const std::function<void()>& make);

  bool ok() const;               // whether no line has the verdict "NOT OK"
  std::string markdown() const;  // aligned, so that it is plain text as well; notes in 100 columns
};

}  // namespace fsdp
