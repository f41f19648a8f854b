#include <base/text.h>
#include <command_line/toml.h>
#include <reproduce/checks.h>
#include <reproduce/columns.h>
#include <reproduce/read_rows.h>

#include <algorithm>

namespace fsdp {

// Text of tables.toml; cmake/maintainers.cmake compiles it in.
extern const char* const kTablesText;

namespace {

using Texts = std::vector<std::string>;

bool is_one_of(const std::string& text, const Texts& texts) {
  return std::ranges::find(texts, text) != texts.end();
}

// Returns the text as one line: replaces each line feed by a space.
std::string paragraph(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

PrintedWords read_printed_words(const TomlTable& toml, const Texts& columns) {
  PrintedWords words;
  for (const std::string& column : toml.keys()) {
    if (!is_one_of(column, columns))
      toml.refuse("reads " + one_line(column) + ", and the table has no such column", column);
    PrintedWord& word = words[column];
    if (toml.is_text(column)) {
      word.text = toml.text(column);
      continue;
    }
    const TomlTable place = toml.table(column);
    place.allow_only({"line", "word", "unit"});
    word.line = place.text("line");
    const int64_t number = place.number("word");
    if (number < 0) place.refuse("has a word before the first one, which is 0", "word");
    word.word = static_cast<size_t>(number);
    word.unit = place.text("unit", "");
  }
  return words;
}

// Returns the list of texts of the key `key`. Throws TomlError unless the list has as many texts as
// there are `columns`.
Texts texts_for(const TomlTable& toml, const std::string& key, const Texts& columns) {
  const Texts texts = toml.texts(key);
  if (texts.size() != columns.size())
    toml.refuse("has " + counted(static_cast<int64_t>(texts.size()), "text") + " in " + key +
                    "; the table has " +
                    counted(static_cast<int64_t>(columns.size()), "such column"),
                key);
  return texts;
}

// Returns whether the line of a table runs train. (columns.h names the columns that such a line
// fills.)
bool trains(const TableOfRow& table, const LineOfTable& line) {
  return table.program == "train" && line.command.empty() && line.cells.empty();
}

// If the line does not run train, throws TomlError unless its key `read` says for every column of
// the table where the program prints the cell.
void require_read(const TomlTable& toml, const TableOfRow& table, const LineOfTable& line) {
  if (trains(table, line)) return;
  for (const std::string& column : table.columns)
    if (!line.read.contains(column))
      toml.refuse("lacks the column " + column + " in `read`, which names the word to read");
}

void require_known_columns(const TomlTable& toml, const TableOfRow& table) {
  const auto of_train = [&](const LineOfTable& line) { return trains(table, line); };
  if (std::ranges::none_of(table.lines, of_train)) return;
  const Texts known = names_of_columns();
  for (const std::string& column : table.columns)
    if (!is_one_of(column, known))
      toml.refuse("has the column " + one_line(column) + ", which no run has; it may have " +
                      in_a_row(known, "and"),
                  "columns");
}

int64_t read_receipt_sample(const TomlTable& toml, bool trains) {
  if (!toml.has("receipt")) return 0;
  if (!trains) toml.refuse("has a receipt, which only a run of train leaves", "receipt");
  const int64_t sample = toml.number("receipt");
  if (sample < 1)
    toml.refuse("has a receipt of one event in " + std::to_string(sample) +
                    "; it must be 1 (all events) or more",
                "receipt");
  return sample;
}

LineOfTable read_line(const TomlTable& toml, const TableOfRow& table, const PrintedWords& read) {
  LineOfTable line;
  if (toml.has("cells")) {
    toml.allow_only({"cells"});
    line.cells = toml.texts("cells");
    const size_t most = table.labels.size() + table.columns.size() + table.published.size();
    if (line.cells.empty() || line.cells.size() > most)
      toml.refuse("has " + counted(static_cast<int64_t>(line.cells.size()), "cell") +
                      "; the table has " + counted(static_cast<int64_t>(most), "column"),
                  "cells");
    return line;
  }
  toml.allow_only({"labels", "options", "command", "published", "same_parameters", "if_it_fails",
                   "needs", "receipt", "read"});
  line.labels = texts_for(toml, "labels", table.labels);
  if (toml.has("published")) line.published = texts_for(toml, "published", table.published);
  line.options = toml.text("options", "");
  line.command = toml.text("command", "");
  line.same_parameters = toml.flag("same_parameters");
  line.may_fail = toml.has("if_it_fails");
  line.if_it_fails = toml.texts("if_it_fails");
  if (line.if_it_fails.size() > table.columns.size())
    toml.refuse("has more texts in if_it_fails than the table has columns", "if_it_fails");
  line.needs_peers = toml.has("needs") && toml.word("needs", {"peers"}) == "peers";
  line.read = read;
  for (const auto& [column, word] : read_printed_words(toml.table("read"), table.columns))
    line.read[column] = word;
  require_read(toml, table, line);
  line.receipt_sample = read_receipt_sample(toml, trains(table, line));
  return line;
}

Factor read_factor(const TomlTable& toml) {
  toml.allow_only({"name", "applies_to", "values"});
  Factor factor{
      toml.text("name"), toml.word("applies_to", {"every run", "first run"}) == "every run", {}};
  for (const Texts& value : toml.lists_of_texts("values")) {
    if (value.size() != 2) toml.refuse("has a value that is not [text, options]", "values");
    factor.values.push_back({value[0], value[1]});
  }
  if (factor.values.empty()) toml.refuse("lacks values");
  return factor;
}

// Reads the keys of a table that has factors: its lines are combinations of the factors' values.
void read_factors(const TomlTable& toml, TableOfRow& table) {
  for (const char* key : {"labels", "columns", "published", "read", "line", "needs", "check"})
    if (toml.has(key)) toml.refuse("has factors, which take the place of " + std::string(key), key);
  for (const TomlTable& factor : toml.tables("factor"))
    table.factors.push_back(read_factor(factor));
  table.comparisons = toml.lists_of_texts("comparisons");
  if (table.comparisons.empty() || std::ranges::any_of(table.comparisons, &Texts::empty))
    toml.refuse("needs comparisons: the options of the runs that are compared", "comparisons");
  if (table.factors.size() < 2) toml.refuse("needs at least two factors", "factor");
}

void read_lines(const TomlTable& toml, TableOfRow& table) {
  table.labels = toml.texts("labels");
  table.columns = toml.texts("columns");
  table.published = toml.texts("published");
  table.needs_cores = toml.has("needs") && toml.word("needs", {"cores"}) == "cores";
  if (toml.has("comparisons")) toml.refuse("has comparisons but no factor", "comparisons");
  if (toml.has("check")) table.check = toml.word("check", names_of_checks());
  for (const std::string& column : columns_of_check(table.check))
    if (!is_one_of(column, table.columns))
      toml.refuse("has a check that reads the column " + column + ", which the table lacks",
                  "check");
  const PrintedWords read = read_printed_words(toml.table("read"), table.columns);
  for (const TomlTable& line : toml.tables("line"))
    table.lines.push_back(read_line(line, table, read));
  if (table.lines.empty()) toml.refuse("has neither a line nor a factor");
  require_known_columns(toml, table);
}

TableOfRow read_table(const TomlTable& toml) {
  toml.allow_only({"title", "labels", "columns", "published", "program", "options", "read", "needs",
                   "check", "notes", "line", "factor", "comparisons"});
  TableOfRow table;
  table.title = toml.text("title");
  table.options = toml.text("options", "");
  table.program = toml.has("program") ? toml.word("program", {"train", "plan", "bench"}) : "train";
  for (const std::string& note : toml.texts("notes"))
    table.notes.push_back(paragraph(note));
  if (toml.has("factor"))
    read_factors(toml, table);
  else
    read_lines(toml, table);
  return table;
}

// Sets the file names of the receipts that the row's runs leave: ROW-1.receipt, ROW-2.receipt ...
void name_receipts(Row& row) {
  int number = 0;
  for (TableOfRow& table : row.tables)
    for (LineOfTable& line : table.lines)
      if (line.receipt_sample > 0)
        line.receipt = row.name + "-" + std::to_string(++number) + ".receipt";
}

Row read_row(const TomlTable& toml) {
  toml.allow_only(
      {"name", "source", "kind", "minutes", "when", "command", "same_as", "code", "table"});
  Row row;
  row.name = toml.text("name");
  row.source = toml.text("source");
  row.kind = toml.word("kind", {"measured", "planned", "arithmetic", "published", "test"});
  row.minutes = static_cast<int>(toml.number("minutes"));
  row.same_as = toml.text("same_as", "");
  if (!row.same_as.empty()) toml.allow_only({"name", "source", "kind", "minutes", "same_as"});
  row.when = row.same_as.empty() ? toml.word("when", {"default", "all", "long", "never"}) : "never";
  row.code = toml.has("code") ? toml.word("code", {"gpt2xl", "equivalence", "strict"}) : "";
  for (const TomlTable& table : toml.tables("table"))
    row.tables.push_back(read_table(table));
  if (!row.code.empty() && !row.tables.empty())
    toml.refuse("has code, which takes the place of [[row.table]]", "code");
  name_receipts(row);
  const std::string& shown = row.same_as.empty() ? row.name : row.same_as;
  row.command = toml.text("command", "./fsdp reproduce --only " + shown);
  if (row.when != "never" && !row.has_tables())
    toml.refuse("needs [[row.table]] or code: " + row.name + " runs with --" + row.when);
  if (row.when == "never" && row.same_as.empty() && !toml.has("command"))
    toml.refuse("needs command: nothing shows " + row.name);
  return row;
}

}  // namespace

Rows read_rows(const std::string& text, const std::string& file) {
  const TomlTable toml = parse_toml(text, file);
  toml.allow_only({"legend", "row"});
  Rows all{{}, paragraph(toml.text("legend"))};
  const auto of_name = [&](const std::string& name) {
    return std::ranges::find(all.rows, name, &Row::name) != all.rows.end();
  };
  const std::vector<TomlTable> tables = toml.tables("row");
  for (const TomlTable& table : tables) {
    Row row = read_row(table);
    if (of_name(row.name))
      table.refuse("has the name " + row.name + ", as a row above has", "name");
    row.number = static_cast<int>(all.rows.size()) + 1;
    all.rows.push_back(std::move(row));
  }
  for (size_t i = 0; i < tables.size(); ++i) {
    const std::string& same_as = all.rows[i].same_as;
    if (!same_as.empty() && !of_name(same_as))
      tables[i].refuse("has the same_as " + one_line(same_as) + ", which is the name of no row",
                       "same_as");
  }
  return all;
}

const Rows& rows_of_tables_toml() {
  static const Rows rows = read_rows(kTablesText, "programs/reproduce/tables.toml");
  return rows;
}

}  // namespace fsdp
