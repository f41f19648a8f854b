#pragma once

#include <map>
#include <string>
#include <vector>

// What tables.toml says. Its first lines say what each key means.
namespace fsdp {

// Where a column stands in the output of a program; or its text.
struct PrintedWord {
  std::string line;  // how the line begins; empty: `text` is the cell
  size_t word{};     // of the line, from 0 on
  std::string unit;  // printed after the word
  std::string text;
};
using PrintedWords = std::map<std::string, PrintedWord>;  // column -> where it stands

struct LineOfTable {
  std::vector<std::string> labels, published;
  std::string options, command;
  bool same_parameters{}, may_fail{}, needs_peers{};
  std::vector<std::string> if_it_fails;  // columns if the run failed
  PrintedWords read;
  std::vector<std::string> cells;  // of a line without a run; else empty
};

struct FactorValue {
  std::string text, options;
};

struct Factor {
  std::string name;
  bool in_every_run{};  // else only in the run that a line shows
  std::vector<FactorValue> values;
};

struct TableOfRow {
  std::string title, program, options;
  std::vector<std::string> labels, columns, published;  // headings
  bool needs_cores{};
  std::string check;  // its name in checks.h; empty if there is none
  std::vector<LineOfTable> lines;
  // Of a table that has no lines, but all pairs of values.
  std::vector<Factor> factors;
  std::vector<std::vector<std::string>> comparisons;
  std::vector<std::string> notes;
};

// A table, figure or claim of the published documents, and what shows it here.
struct Row {
  int number{};  // its place in the file, from 1 on
  std::string name, source, kind;
  int minutes{};        // on two cores
  std::string when;     // "default", "all", "long" or "never"
  std::string same_as;  // the row whose tables show this one too; else empty
  std::string command;  // shows it
  std::string code;     // names what makes the tables in C++; else empty
  std::vector<TableOfRow> tables;

  // Whether `reproduce` itself makes tables for it.
  bool has_tables() const { return !code.empty() || !tables.empty(); }
};

struct Rows {
  std::vector<Row> rows;
  std::string legend;  // what --list prints below them
};

}  // namespace fsdp
