#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

// These structs have the content of tables.toml, whose first lines describe each key.
namespace fsdp {

// Tells how the cell of a column is found: in the output of a program, or as a fixed text.
struct PrintedWord {
  // The beginning of the line of output that has the word for the cell; empty: the cell is `text`.
  std::string line;
  size_t word{};     // index, from 0 on, of the word for the cell in the line of output
  std::string unit;  // text that is appended to the word in the cell
  std::string text;
};
// Key: heading of a column. Value: how the cell of the column is found.
using PrintedWords = std::map<std::string, PrintedWord>;

struct LineOfTable {
  std::vector<std::string> labels, published;
  std::string options, command;
  bool same_parameters{}, may_fail{}, needs_peers{};
  std::vector<std::string> if_it_fails;  // the cells of TableOfRow::columns if the run fails
  PrintedWords read;
  // The value of train --receipt-sample: about one in this many events is in the run's receipt. 0:
  // the run writes no receipt.
  int64_t receipt_sample{};
  std::string receipt;  // name of the receipt's file: "ddp-1.receipt"
  // All cells of the line if no program runs for the line; empty if a program runs.
  std::vector<std::string> cells;
};

struct FactorValue {
  std::string text, options;
};

struct Factor {
  std::string name;
  // true: all runs of a comparison get the options of this factor; false: only the first run does.
  bool in_every_run{};
  std::vector<FactorValue> values;
};

struct TableOfRow {
  std::string title, program, options;
  // Headings of the table's columns: first those that name a line, then those that a run fills,
  // then those of published values.
  std::vector<std::string> labels, columns, published;
  bool needs_cores{};
  std::string check;  // name of a check in checks.h; empty: no check
  std::vector<LineOfTable> lines;
  // `factors` and `comparisons` are empty unless the table has factors; such a table has no
  // `lines`.
  std::vector<Factor> factors;
  std::vector<std::vector<std::string>> comparisons;
  std::vector<std::string> notes;
};

// A table, figure or claim of the published documents, and how this course reproduces it.
struct Row {
  int number{};  // position of the row in tables.toml, from 1 on
  std::string name, source, kind;
  int minutes{};        // [min] time that ./fsdp reproduce needs for the row on two cores
  std::string when;     // when reproduce runs it: "default", "all", "long" or "never"
  std::string same_as;  // name of the row whose tables also show this row; empty: none
  std::string command;  // the command that shows the row's results
  std::string code;  // "gpt2xl", "equivalence" or "strict": C++ code that makes the tables; else ""
  std::vector<TableOfRow> tables;

  // Returns whether `./fsdp reproduce` makes tables for this row.
  bool has_tables() const { return !code.empty() || !tables.empty(); }
  // Returns whether a training run of this row leaves a receipt.
  bool has_receipts() const {
    const auto leaves_one = [](const LineOfTable& line) { return !line.receipt.empty(); };
    return code == "gpt2xl" || std::ranges::any_of(tables, [&](const TableOfRow& table) {
             return std::ranges::any_of(table.lines, leaves_one);
           });
  }
};

struct Rows {
  std::vector<Row> rows;
  std::string legend;  // text that ./fsdp reproduce --list prints below the rows
};

}  // namespace fsdp
