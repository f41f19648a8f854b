#include <base/text.h>
#include <reproduce/table.h>

#include <algorithm>
#include <utility>

namespace fsdp {
namespace {

std::string verdict(const Line& line) {
  return !line.ok ? "" : (*line.ok ? "ok" : "NOT OK");
}

// Returns whether the cell is a number. Numbers are aligned right, other cells left.
bool is_number(const std::string& cell) {
  return !cell.empty() && cell.find_first_not_of("0123456789.,+-e") == std::string::npos;
}

std::string padded(const std::string& cell, size_t width) {
  const std::string gap(width - cell.size(), ' ');
  return is_number(cell) ? gap + cell : cell + gap;
}

}  // namespace

void Table::add(std::vector<std::string> cells, const std::function<Line()>& make) {
  add_lines(std::move(cells), [&] { lines.push_back(make()); });
}

void Table::add_lines(std::vector<std::string> cells, const std::function<void()>& make) {
  try {
    make();
  } catch (const std::exception& error) {
    std::string label;
    for (const std::string& cell : cells)
      label += (label.empty() ? "" : " ") + cell;
    notes.push_back(label + ": " + error.what());
    lines.push_back({std::move(cells), false});
  }
}

bool Table::ok() const {
  return std::all_of(lines.begin(), lines.end(), [](const Line& line) { return line.ok != false; });
}

std::string Table::markdown() const {
  std::vector<std::vector<std::string>> rows{header};
  for (const Line& line : lines)
    rows.push_back(line.cells);
  std::vector<size_t> widths(header.size() + 1, 1);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].resize(header.size());
    rows[i].push_back(i == 0 ? "" : verdict(lines[i - 1]));
    for (size_t column = 0; column < widths.size(); ++column)
      widths[column] = std::max(widths[column], rows[i][column].size());
  }
  std::string text = "## " + title + "\n\n", rule = "|";
  for (const size_t width : widths)
    rule += std::string(width + 2, '-') + '|';
  rule += '\n';
  for (const auto& row : rows) {
    text += '|';
    for (size_t column = 0; column < widths.size(); ++column)
      text += ' ' + padded(row[column], widths[column]) + " |";
    text += '\n' + std::exchange(rule, "");  // the line of dashes comes only below the header
  }
  for (const std::string& note : notes)
    text += "\n" + wrap(note, kColumns) + "\n";
  return text;
}

}  // namespace fsdp
