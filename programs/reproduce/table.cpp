#include <base/text.h>
#include <reproduce/table.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace fsdp {
namespace {

constexpr size_t kColumns = 100;

std::string verdict(const Line& line) {
  return !line.ok ? "" : (*line.ok ? "ok" : "NOT OK");
}

// A number is flush right, a word flush left.
bool is_number(const std::string& cell) {
  return !cell.empty() && cell.find_first_not_of("0123456789.,+-e") == std::string::npos;
}

std::string row(const std::vector<std::string>& cells, const std::vector<size_t>& widths) {
  std::string text = "|";
  for (size_t i = 0; i < widths.size(); ++i) {
    const std::string cell = i < cells.size() ? cells[i] : "";
    const std::string gap(widths[i] - cell.size(), ' ');
    text += " " + (is_number(cell) ? gap + cell : cell + gap) + " |";
  }
  return text + "\n";
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
  std::vector<std::string> names = header;
  names.emplace_back();
  std::vector<size_t> widths;
  for (size_t i = 0; i < names.size(); ++i) {
    size_t width = names[i].size();
    for (const Line& line : lines) {
      const bool last = i + 1 == names.size();
      const std::string cell = last ? verdict(line) : (i < line.cells.size() ? line.cells[i] : "");
      width = std::max(width, cell.size());
    }
    widths.push_back(std::max<size_t>(width, 1));
  }
  std::string text = "## " + title + "\n\n" + row(names, widths) + "|";
  for (const size_t width : widths)
    text += std::string(width + 2, '-') + "|";
  text += '\n';
  for (const Line& line : lines) {
    std::vector<std::string> cells = line.cells;
    cells.resize(header.size());
    cells.push_back(verdict(line));
    text += row(cells, widths);
  }
  for (const std::string& note : notes)
    text += "\n" + wrap(note, kColumns) + "\n";
  return text;
}

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string scientific(double value) {
  if (value == 0) return "0";
  char text[32];
  std::snprintf(text, sizeof text, "%.0e", value);
  return text;
}

double relative_difference(double value, double expected) {
  return std::abs(value - expected) / std::abs(expected);
}

}  // namespace fsdp
