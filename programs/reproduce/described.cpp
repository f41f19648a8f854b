#include <command_line/commit.h>
#include <reproduce/described.h>
#include <reproduce/pairwise.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <sstream>

namespace fsdp {
namespace {

// Whether live bytes and traffic are as predicted.
bool as_predicted(const TrainResult& run) {
  return run.last.at("live_bytes_mismatches") == 0 &&
         run.last.at("comm_bytes") == run.last.at("comm_bytes_predicted");
}

// One table after another, line by line.
class Reader {
 public:
  Reader(const Train& train, const Output& output) : train_(train), output_(output) {}

  void read(const std::string& line) {
    std::string text = line.substr(2);
    for (const auto& [name, options] : options_)
      for (auto at = text.find('$' + name); at != std::string::npos; at = text.find('$' + name))
        text.replace(at, 1 + name.size(), options);
    const auto fields = split(text, " | ");
    const auto labels = split(fields[0], ", ");
    const auto field = [&](size_t i) { return i < fields.size() ? fields[i] : ""; };
    switch (line[0]) {
      case '=':
        tables.push_back({text, {}, {}, {}});
        options_.clear();
        factors_.clear();
        first_ = nullptr;
        break;
      case '$':
        base_ = text;
        break;
      case '%':
        options_.emplace_back(text.substr(0, 1), text.substr(2));
        break;
      case ':':
        read_header(text);
        break;
      case '>':
        tables.back().notes.push_back(text);
        break;
      case '.':
        add(labels, {fields.begin() + 1, fields.end()}, {});
        break;
      case 'x':
      case 'y':
        factors_.push_back({line[0] == 'x', fields});
        break;
      case 'p':
        run_pairs(fields);
        break;
      case '@':
        if (field(1).starts_with("bench --peers") &&
            !std::filesystem::exists(source_root() + "/.venv-peers")) {
          add(labels, std::vector<std::string>(columns_.size()), {});
          tables.back().notes.push_back(fields[0] + " needs ./fsdp setup --peers");
          break;
        }
        tables.back().add(labels, [&] {
          std::vector<std::string> cells = labels;
          for (size_t i = 2; i + 1 < fields.size(); i += 2) {
            const auto found = line_of(output_(field(1)), fields[i]);
            for (const std::string& word : split(fields[i + 1], ", ")) {
              size_t end = 0;
              cells.push_back(found.at(std::stoul(word, &end)));
              cells.back() += word.substr(end);
            }
          }
          if (fields.size() % 2 == 1)
            std::ranges::copy(split(fields.back(), ", "), std::back_inserter(cells));
          return Line{cells, {}};
        });
        break;
      case '!':
        try {
          run(labels, field(1), field(2), '*');
        } catch (const std::exception& failure) {
          add(labels, split(field(2), ", "), {});
          tables.back().notes.push_back(fields[0] + ": " + failure.what());
        }
        break;
      default:
        tables.back().add_lines(labels, [&] { run(labels, field(1), field(2), line[0]); });
    }
  }

  Tables tables;

 private:
  void read_header(const std::string& text) {
    const auto parts = split(text, "; ");
    columns_ = split(parts.size() > 1 ? parts[1] : "", ", ");
    auto& header = tables.back().header;
    for (const std::string& part : parts)
      std::ranges::copy(split(part, ", "), std::back_inserter(header));
  }

  void add(std::vector<std::string> cells, const std::vector<std::string>& more,
           std::optional<bool> ok) {
    cells.insert(cells.end(), more.begin(), more.end());
    tables.back().lines.push_back({std::move(cells), ok});
  }

  void run(const std::vector<std::string>& labels, const std::string& more,
           const std::string& given, char kind) {
    const TrainOptions options = words(base_ + " " + more);
    const auto has = [&](const char* column) { return std::ranges::count(columns_, column) > 0; };
    std::vector<std::string> cells;
    const std::string& world = *std::next(std::ranges::find(options, "--world"));
    if (has("speedup") && std::stol(world) > sysconf(_SC_NPROCESSORS_ONLN)) {
      cells = {"needs " + world + " cores", "", ""};
      std::ranges::copy(split(given, ", "), std::back_inserter(cells));
      return add(labels, cells, {});
    }
    const TrainResult& result = train_(options);
    if (first_ == nullptr) first_ = &result;
    if (kind == '*') hash_ = result.hash();
    for (const std::string& column : columns_)
      cells.push_back(cell_of(column, train_, options, result, *first_));
    std::optional<bool> ok = as_predicted(result) && result.hash() == hash_;
    if (has("solved at")) ok = *ok && std::ranges::count(cells, "never") == 0;
    if (has("bound")) {
      if (cells[5] == "busy")
        ok.reset();
      else
        ok = *ok && std::stod(cells[5]) <= 1.05 * std::stod(cells[6]);
    }
    if (has("needs"))
      ok = *ok && (std::stod(cells[1]) < std::stod(cells[0])) ==
                      (std::stod(cells[2]) > std::stod(cells[3]));
    std::ranges::copy(split(given, ", "), std::back_inserter(cells));
    add(labels, cells, ok);
  }

  void run_pairs(const std::vector<std::string>& options) {
    Table& table = tables.back();
    table.header.clear();
    std::vector<size_t> counts;
    for (const Factor& factor : factors_) {
      table.header.push_back(factor.values[0]);
      counts.push_back(factor.values.size() - 1);
    }
    table.header.emplace_back("sha256");
    for (const auto& row : pairwise_cover(counts)) {
      std::vector<std::string> cells;
      std::string agreed = base_ + " ", own;
      for (size_t i = 0; i < row.size(); ++i) {
        const std::string& value = factors_[i].values[row[i] + 1];
        const size_t end =
            value.find(": ") == std::string::npos ? value.size() - 1 : value.find(": ");
        cells.push_back(value.substr(0, end));
        (factors_[i].agreed ? agreed : own) += value.substr(end + 1) + " ";
      }
      table.add(cells, [&] {
        const TrainResult& run = train_(words(agreed + own + options[0]));
        Line line{cells, as_predicted(run)};
        line.cells.push_back(run.hash().substr(0, 8));
        for (size_t i = 1; i < options.size(); ++i)
          line.ok = *line.ok && train_(words(agreed + options[i])).hash() == run.hash();
        return line;
      });
    }
  }

  // The words of the first line of `text` that begins with those of `begin`.
  static std::vector<std::string> line_of(const std::string& text, const std::string& begin) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      if ((joined(words(line)) + ' ').starts_with(begin + ' ')) return words(line);
    throw std::runtime_error("there is no line " + begin);
  }

  struct Factor {
    bool agreed;                      // by all runs that are compared
    std::vector<std::string> values;  // after the name, each "LABEL: OPTIONS"
  };

  const Train& train_;
  const Output& output_;
  std::vector<Factor> factors_;
  std::string base_, hash_;
  std::vector<std::pair<std::string, std::string>> options_;  // by their names
  std::vector<std::string> columns_;
  const TrainResult* first_{};
};

}  // namespace

std::vector<std::string> whole_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with(' '))
      lines.back() += line;
    else if (!line.empty())
      lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (!text.empty() && begin <= text.size()) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + separator.size();
  }
  return parts;
}

Tables described_tables(const std::vector<std::string>& lines, const Train& train,
                        const Output& output) {
  Reader reader(train, output);
  for (const std::string& line : lines)
    reader.read(line);
  return std::move(reader.tables);
}

}  // namespace fsdp
