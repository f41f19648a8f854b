#include <command_line/commit.h>
#include <reproduce/checks.h>
#include <reproduce/columns.h>
#include <reproduce/line_table.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <stdexcept>

namespace fsdp {
namespace {

using Texts = std::vector<std::string>;

void append(Texts& texts, const Texts& more) {
  texts.insert(texts.end(), more.begin(), more.end());
}

std::string with_commas(const Texts& texts) {
  std::string text;
  for (const std::string& one : texts)
    text += (text.empty() ? "" : ", ") + one;
  return text;
}

// Returns the words of the first line of `text` whose first words are those of `begin`. Throws
// std::runtime_error if there is no such line.
Texts words_of_line(const std::string& text, const std::string& begin) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if ((joined(words(line)) + ' ').starts_with(begin + ' ')) return words(line);
  throw std::runtime_error("the program printed no line that begins with " + begin);
}

std::string printed_cell(const std::string& output, const PrintedWord& place) {
  if (place.line.empty()) return place.text;
  const Texts found = words_of_line(output, place.line);
  if (place.word >= found.size())
    throw std::runtime_error("the printed line " + place.line + " has no word " +
                             std::to_string(place.word));
  return found[place.word] + (place.unit.empty() ? "" : " ") + place.unit;
}

class LineRunner {
 public:
  LineRunner(const TableOfRow& table, const Train& train, const Output& output)
      : table_(table), train_(train), output_(output) {
    made_.title = table.title;
    for (const Texts* heads : {&table.labels, &table.columns, &table.published})
      append(made_.header, *heads);
  }

  Table run() {
    for (const LineOfTable& line : table_.lines) {
      if (!line.cells.empty())
        made_.lines.push_back({line.cells, {}});
      else if (line.needs_peers && !std::filesystem::exists(source_root() + "/.venv-peers"))
        leave_out(line, "needs ./fsdp setup --peers");
      else if (!line.command.empty() || table_.program != "train")
        made_.add(line.labels, [&] { return run_command(line); });
      else if (line.may_fail)
        run_train_that_may_fail(line);
      else
        made_.add(line.labels, [&] { return run_train(line); });
    }
    append(made_.notes, table_.notes);
    return std::move(made_);
  }

 private:
  // Returns a line of the finished table. Its cells are the labels of `line`, then the measured
  // cells `columns`, then the published values of `line`.
  static Line line_of(const LineOfTable& line, const Texts& columns, std::optional<bool> ok) {
    Line made{line.labels, ok};
    append(made.cells, columns);
    append(made.cells, line.published);
    return made;
  }

  void leave_out(const LineOfTable& line, const std::string& why) {
    made_.lines.push_back(line_of(line, Texts(table_.columns.size()), {}));
    made_.notes.push_back(with_commas(line.labels) + " " + why);
  }

  Line run_command(const LineOfTable& line) {
    const std::string whole = table_.program + " " + table_.options + " " + line.options;
    const std::string output = output_(joined(words(line.command.empty() ? whole : line.command)));
    Texts cells;
    for (const std::string& column : table_.columns)
      cells.push_back(printed_cell(output, line.read.at(column)));
    return line_of(line, cells, {});
  }

  void run_train_that_may_fail(const LineOfTable& line) {
    try {
      made_.lines.push_back(run_train(line));
    } catch (const std::exception& failure) {
      made_.lines.push_back(line_of(line, line.if_it_fails, {}));
      made_.notes.push_back(with_commas(line.labels) + ": " + failure.what());
    }
  }

  Line run_train(const LineOfTable& line) {
    const TrainOptions options = words(table_.options + " " + line.options);
    if (table_.needs_cores) {
      const std::string world = value_of(options, "--world");
      if (std::stol(world) > sysconf(_SC_NPROCESSORS_ONLN)) {
        Texts cells(table_.columns.size());
        cells.at(0) = "needs " + world + " cores";
        return line_of(line, cells, {});
      }
    }
    const TrainResult& result = train_(with_receipt(options, line));
    if (first_ == nullptr) first_ = &result;
    if (!line.same_parameters) hash_ = result.hash();
    Texts cells;
    Cells by_column;
    for (const std::string& column : table_.columns) {
      cells.push_back(cell_of(column, {options, result, *first_, train_}));
      by_column[column] = cells.back();
    }
    return line_of(line, cells, verdict(result, by_column));
  }

  static TrainOptions with_receipt(TrainOptions options, const LineOfTable& line) {
    if (line.receipt.empty()) return options;
    append(options, {"--receipt", "%/" + line.receipt, "--receipt-sample",
                     std::to_string(line.receipt_sample)});
    return options;
  }

  std::optional<bool> verdict(const TrainResult& result, const Cells& cells) const {
    const bool is_right = is_as_predicted(result) && result.hash() == hash_;
    if (table_.check.empty()) return is_right;
    const std::optional<bool> passed = passes(table_.check, cells);
    if (!passed) return {};
    return is_right && *passed;
  }

  const TableOfRow& table_;
  const Train& train_;
  const Output& output_;
  Table made_;
  const TrainResult* first_{};  // result of the first run of train in this table
  // Hash of the parameters at the end of the latest run whose line lacks `same_parameters`. The run
  // of a line with `same_parameters` must end with this hash.
  std::string hash_;
};

}  // namespace

Table run_lines(const TableOfRow& table, const Train& train, const Output& output) {
  return LineRunner(table, train, output).run();
}

}  // namespace fsdp
