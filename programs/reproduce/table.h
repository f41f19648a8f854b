#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

constexpr size_t kColumns = 100;  // width, in characters, of the notes below a table

// One line of a table. `ok` is the verdict; without a value, the line has no verdict.
struct Line {
  std::vector<std::string> cells;
  std::optional<bool> ok;
};

// A table of a report. markdown() adds a last column, which shows which lines are ok.
struct Table {
  std::string title;
  std::vector<std::string> header;  // headings, without that of the column that markdown() adds
  std::vector<Line> lines;
  std::vector<std::string> notes;  // paragraphs below the table

  // Adds the line that `make` returns. If `make` throws, adds a line with the cells `cells` that is
  // not ok, and the error as a note.
  void add(std::vector<std::string> cells, const std::function<Line()>& make);
  // Calls `make`, which adds lines itself. If `make` throws, adds a line with the cells `cells`
  // that is not ok, and the error as a note.
  void add_lines(std::vector<std::string> cells, const std::function<void()>& make);

  bool ok() const;  // whether no line has the verdict "NOT OK"
  // The table in Markdown, aligned so that it also reads as plain text; notes in 100 columns.
  std::string markdown() const;
};

}  // namespace fsdp
