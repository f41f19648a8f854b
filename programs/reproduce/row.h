#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

// The content of tables.toml, whose first lines describe each key.
namespace fsdp {

// The place at which a program prints the cell of a column, or the cell's text.
struct PrintedWord {
  std::string line;  // the beginning of the printed line; empty: `text` is the cell
  size_t word{};     // number of the word in the line, from 0 on
  std::string unit;  // printed after the word
  std::string text;
};
using PrintedWords = std::map<std::string, PrintedWord>;  // by column

struct LineOfTable {
  std::vector<std::string> labels, published;
  std::string options, command;
  bool same_parameters{}, may_fail{}, needs_peers{};
  std::vector<std::string> if_it_fails;  // cells of the columns if the run failed
  PrintedWords read;
  int64_t receipt_sample{};        // of the run's receipt (see Sampling); 0: it leaves none
  std::string receipt;             // name of the receipt's file: "ddp-1.receipt"
  std::vector<std::string> cells;  // all cells of a line that runs nothing; else empty
};

struct FactorValue {
  std::string text, options;
};

struct Factor {
  std::string name;
  bool in_every_run{};  // false: only the first run of a comparison has these options
  std::vector<FactorValue> values;
};

struct TableOfRow {
  std::string title, program, options;
  std::vector<std::string> labels, columns, published;  // headings
  bool needs_cores{};
  std::string check;  // its name in checks.h; empty if there is none
  std::vector<LineOfTable> lines;
  // Only a table with factors has these two, and it has no `lines`.
  std::vector<Factor> factors;
  std::vector<std::vector<std::string>> comparisons;
  std::vector<std::string> notes;
};

// A table, figure or claim of the published documents, and how this course reproduces it.
struct Row {
  int number{};  // position in the file, from 1 on
  std::string name, source, kind;
  int minutes{};        // on two cores
  std::string when;     // "default", "all", "long" or "never"
  std::string same_as;  // the row whose tables also show this row; else empty
  std::string command;  // the command that shows this row
  std::string code;     // name of the C++ code that makes the tables; else empty
  std::vector<TableOfRow> tables;

  // Returns whether `reproduce` makes tables for this row.
  bool has_tables() const { return !code.empty() || !tables.empty(); }
  // Returns whether a run of this row leaves a receipt.
  bool has_receipts() const {
    const auto leaves_one = [](const LineOfTable& line) { return !line.receipt.empty(); };
    return code == "gpt2xl" || std::ranges::any_of(tables, [&](const TableOfRow& table) {
             return std::ranges::any_of(table.lines, leaves_one);
           });
  }
};

struct Rows {
  std::vector<Row> rows;
  std::string legend;  // text that --list prints below the rows
};

}  // namespace fsdp
