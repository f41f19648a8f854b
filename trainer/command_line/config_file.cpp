#include <base/text.h>
#include <base/whole_file.h>
#include <command_line/command_line.h>
#include <command_line/config_file.h>
#include <command_line/usage.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <regex>
#include <sstream>
#include <stdexcept>

namespace fsdp {
namespace {

const char* const kOption = "--config";

// Parses the text of a file of options (--config). A function that reads begins at the position at_
// in the text, and moves at_ behind what it has read.
class ConfigText {
 public:
  explicit ConfigText(const std::string& text) : text_(text + '\n') {}

  std::vector<ConfigLine> lines() {
    std::vector<ConfigLine> lines;
    for (skip(true); at_ < text_.size(); skip(true)) {
      if (text_[at_] == '[') {
        begin_table();
        continue;
      }
      lines.push_back(line());
      require_new(lines.back().name, lines.back().number);
    }
    return lines;
  }

 private:
  [[noreturn]] static void refuse(int line, const std::string& why) {
    throw std::invalid_argument("line " + std::to_string(line) + ": " + why);
  }

  // Throws std::invalid_argument if an earlier line has the same `name`: the name of an option, or
  // a table with its brackets, such as "[training]".
  void require_new(const std::string& name, int line) {
    const auto [place, is_new] = seen_.emplace(name, line);
    if (is_new) return;
    refuse(line, name + " is in line " + std::to_string(place->second) + " too; give it once");
  }

  // Reads a line that begins a table, such as "[training]".
  void begin_table() {
    const int number = number_;
    const std::string line = rest(number);
    ++at_;
    skip(false);
    table_ = word();
    skip(false);
    const bool closed = at_ < text_.size() && text_[at_] == ']';
    if (closed) ++at_;
    skip(false);
    const bool ends = at_ >= text_.size() || text_[at_] == '\n';
    if (table_.empty() || !closed || !ends)
      refuse(number, "a table is a name in brackets, as [training], not '" + one_line(line) + "'");
    require_new('[' + table_ + ']', number);
  }

  // Skips spaces and comments; also line feeds if `over_lines` is true.
  void skip(bool over_lines) {
    while (at_ < text_.size()) {
      if (text_[at_] == '#') at_ = text_.find('\n', at_);
      const char c = text_[at_];
      if (c == '\n' && !over_lines) return;
      if (c == '\n') ++number_;
      if (c != '\n' && c != ' ' && c != '\t' && c != '\r') return;
      ++at_;
    }
  }

  std::string word() {
    static const std::string kEnds = " \t\r\n#=,[]\"'";
    const size_t end = std::min(text_.find_first_of(kEnds, at_), text_.size());
    std::string found = text_.substr(at_, end - at_);
    at_ = end;
    return found;
  }

  ConfigLine line() {
    const int number = number_;
    const bool quoted = text_[at_] == '"' || text_[at_] == '\'';
    ConfigLine found{quoted ? value() : word(), {}, number, table_};
    if (found.name.starts_with("--")) found.name.erase(0, 2);
    skip(false);
    if (found.name.empty() || at_ >= text_.size() || text_[at_] != '=')
      refuse(number,
             "expected NAME = VALUE, as in steps = 200, not '" + one_line(rest(number)) + "'");
    ++at_;
    skip(false);
    if (at_ < text_.size() && text_[at_] == '[') {
      found.values = array(found.name);
    } else {
      found.values = {value(found.name)};
    }
    skip(false);
    if (at_ < text_.size() && text_[at_] != '\n')
      refuse(number_, found.name +
                          " has more than one value; several need brackets, as in "
                          "[\"a\", \"b\"]");
    return found;
  }

  // Returns the text of line `number` of the file, counted from 1.
  std::string rest(int number) const {
    std::istringstream lines(text_);
    std::string found;
    for (int i = 0; i < number; ++i)
      std::getline(lines, found);
    return found;
  }

  std::string value(const std::string& name = "") {
    if (at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\'')) {
      const size_t end = text_.find(text_[at_], at_ + 1);
      if (end > text_.find('\n', at_)) refuse(number_, "a text has no quote at its end");
      std::string found = text_.substr(at_ + 1, end - at_ - 1);
      at_ = end + 1;
      return found;
    }
    static const std::regex kBare(
        "true|false|[+-]?(inf|nan|[0-9][0-9_]*[.]?[0-9]*([eE][+-]?[0-9]+)?"
        "|[.][0-9]+([eE][+-]?[0-9]+)?|0[xob][0-9a-fA-F]+)");
    const std::string found = word();
    if (found.empty()) refuse(number_, name + " has no value");
    if (found.size() > 100 || !std::regex_match(found, kBare))
      refuse(number_, "a text needs quotes: " + name + " = \"" + one_line(found) + '"');
    return found;
  }

  std::vector<std::string> array(const std::string& name) {
    const int number = number_;
    std::vector<std::string> values;
    ++at_;
    for (skip(true); at_ < text_.size() && text_[at_] != ']'; skip(true)) {
      values.push_back(value(name));
      skip(true);
      if (at_ < text_.size() && text_[at_] == ',') {
        ++at_;
      } else if (at_ < text_.size() && text_[at_] != ']') {
        refuse(number_, "a comma must separate the values of " + name);
      }
    }
    if (at_ >= text_.size()) refuse(number, "the values of " + name + " have no ] at their end");
    ++at_;
    return values;
  }

  std::string text_;  // the text of the file, and a newline at its end
  size_t at_{};
  int number_{1};
  std::string table_;  // name of the table that is being read; empty before the first table
  std::map<std::string, int> seen_;  // name of an option or "[table]" -> number of its line
};

// Former names of options -> their names today. The run.toml that an older version has saved beside
// a checkpoint can have former names.
const std::map<std::string, std::string> kFormerNames{
    {"accumulate", "reduce-gradients"}, {"parts", "microbatches"}, {"pinned", "offload-resident"}};

// Returns the lines of the file of options `path`, whose content is `text`. Replaces former names
// of options by today's names. Throws UsageError, which names the file, for a mistake in it.
std::vector<ConfigLine> lines_of_file(const std::string& path, const std::string& text) {
  try {
    std::vector<ConfigLine> lines = read_config(text);
    for (ConfigLine& line : lines) {
      const auto former = kFormerNames.find(line.name);
      if (former != kFormerNames.end()) line.name = former->second;
    }
    return lines;
  } catch (const std::invalid_argument& error) {
    throw UsageError(std::string(kOption) + ' ' + path + ": " + error.what());
  }
}

// Reads the file of --config for CLI11. Stores, for each option that the file sets, the number of
// the line that sets it.
class ConfigReader : public CLI::ConfigBase {
 public:
  explicit ConfigReader(const CLI::App& app) : app_(app) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    path_ = app_.get_config_ptr()->results().back();
    const std::string text{std::istreambuf_iterator<char>(input), {}};
    std::vector<CLI::ConfigItem> items;
    for (const ConfigLine& line : lines_of_file(path_, text)) {
      const CLI::Option* option = app_.get_option_no_throw("--" + line.name);
      const std::string mistake = mistake_in(line, option);
      if (!mistake.empty())
        throw UsageError(std::string(kOption) + ' ' + path_ + ": line " +
                         std::to_string(line.number) + ": " + mistake);
      items.emplace_back();
      items.back().name = line.name;
      items.back().inputs = line.values;
      // Stores the line's number, unless the option is also on the command line: then the value on
      // the command line is used, not the one in the file.
      if (option->count() == 0) places_[option->get_single_name()] = line.number;
    }
    return items;
  }

  std::string place_of(const std::string& option) const {
    const CLI::Option* found = app_.get_option_no_throw(option);
    if (found == nullptr || !places_.contains(found->get_single_name())) return "";
    return " (line " + std::to_string(places_.at(found->get_single_name())) + " of " + path_ + ')';
  }

 private:
  // Returns the mistake in `line` of the file, or "" if the line is right. `option`: the option
  // with the name that the line sets; null if no option has this name.
  std::string mistake_in(const ConfigLine& line, const CLI::Option* option) const {
    if (option == nullptr) return unknown_option(app_, line.name, "");
    if (!option->get_configurable()) return line.name + " can't be set in a file";
    const std::string& group = option->get_group();
    if (line.table.empty() || line.table == group) return "";
    return line.name + " belongs in [" + group + "], not in [" + line.table + ']';
  }

  const CLI::App& app_;
  mutable std::string path_;
  // Name of an option -> number of the line of the file that sets the option.
  mutable std::map<std::string, int> places_;
};

std::string quoted(const std::string& value) {
  static const std::regex kNumber("[+-]?[0-9]+([.][0-9]*)?([eE][+-]?[0-9]+)?");
  if (value == "true" || value == "false") return value;
  if (value.size() <= 100 && std::regex_match(value, kNumber)) return value;
  const char quote = value.find('"') == std::string::npos ? '"' : '\'';
  return quote + value + quote;
}

}  // namespace

std::vector<ConfigLine> read_config(const std::string& text) {
  return ConfigText(text).lines();
}

std::vector<ConfigLine> config_among(const std::vector<std::string>& arguments) {
  std::string path;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == kOption && i + 1 < arguments.size()) path = arguments[i + 1];
    if (arguments[i].starts_with(std::string(kOption) + '='))
      path = arguments[i].substr(std::strlen(kOption) + 1);
  }
  // If the file can't be read, config_among() returns no lines and no error: the caller also passes
  // `arguments` to the parser of `./fsdp train`, which reports the reason.
  if (path.empty() || !reason_not_to_read(path).empty()) return {};
  return lines_of_file(path, content_of(path));
}

void add_config_option(CLI::App& app) {
  app.set_config(
         kOption, "",
         "read options from a TOML file, such as run.toml of a checkpoint; its options may be in "
         "tables, which have the names of the groups below: [ranks], [model], ...")
      ->type_name("FILE");
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.config_formatter(std::make_shared<ConfigReader>(app));
}

std::string config_of(const CLI::App& app,
                      const std::function<bool(const CLI::Option& option)>& left_out) {
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_single_name();
    if (option->count() == 0 || !option->get_configurable() || left_out(*option)) continue;
    std::string values;
    for (const std::string& value : option->results())
      values += (values.empty() ? "" : ", ") + quoted(value);
    text += name + " = " + (option->count() > 1 ? '[' + values + ']' : values) + '\n';
  }
  return text;
}

std::string place_in_config(const CLI::App& app, const std::string& option) {
  const auto reader = std::dynamic_pointer_cast<ConfigReader>(app.get_config_formatter());
  return reader == nullptr ? "" : reader->place_of(option);
}

}  // namespace fsdp
