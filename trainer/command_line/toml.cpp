#include <base/text.h>
#include <command_line/toml.h>

#include <algorithm>
#include <cctype>
#include <utility>

namespace fsdp {
namespace {

using Kind = TomlValue::Kind;

std::string text_of_kind(Kind kind) {
  switch (kind) {
    case Kind::text:
      return "a text in quotes";
    case Kind::number:
      return "a whole number";
    case Kind::boolean:
      return "true or false";
    case Kind::array:
      return "an array";
    case Kind::table:
      return "a table";
  }
  return "";
}

bool is_key_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
}

}  // namespace

// Parses a TOML text. A function that reads begins at the position at_ in the text, and moves at_
// behind what it has read.
class TomlParser {
 public:
  TomlParser(const std::string& text, const std::string& file)
      : text_(text), file_(file), root_(file, 1, "the file") {}

  TomlTable parse() {
    TomlTable* table = &root_;
    for (skip_lines(); !at_end(); skip_lines()) {
      if (text_[at_] == '[')
        table = header();
      else
        key_and_value(*table);
      skip_spaces();
      if (!at_end() && text_[at_] != '\n') refuse("the line has more than one value");
    }
    return std::move(root_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw TomlError(file_ + ":" + std::to_string(line_) + ": " + why);
  }

  bool at_end() const { return at_ >= text_.size(); }

  // Skips spaces and a comment, up to the end of the line.
  void skip_spaces() {
    at_ = std::min(text_.find_first_not_of(" \t\r", at_), text_.size());
    if (!at_end() && text_[at_] == '#') at_ = std::min(text_.find('\n', at_), text_.size());
  }

  // Skips spaces, comments and ends of lines.
  void skip_lines() {
    for (skip_spaces(); !at_end() && text_[at_] == '\n'; skip_spaces()) {
      ++line_;
      ++at_;
    }
  }

  // Returns whether the text continues with `expected` at the position at_. If it does, moves at_
  // behind it.
  bool take(const std::string& expected) {
    if (text_.compare(at_, expected.size(), expected) != 0) return false;
    at_ += expected.size();
    return true;
  }

  std::string key() {
    skip_spaces();
    if (!at_end() && (text_[at_] == '"' || text_[at_] == '\'')) return quoted();
    const size_t begin = at_;
    while (!at_end() && is_key_character(text_[at_]))
      ++at_;
    if (at_ == begin) refuse("a key is expected, as in name = \"small\"");
    return text_.substr(begin, at_ - begin);
  }

  // Reads a header [a.b] or [[a.b]] and returns the new table b that the header begins. If `a` is
  // an array of tables, the new table belongs to the last table of `a`.
  TomlTable* header() {
    const bool of_array = take("[[");
    if (!of_array) take("[");
    TomlTable* table = &root_;
    std::string last = key(), name = last;
    while (take(".")) {
      table = last_table(*table, last);
      last = key();
      name += "." + last;
    }
    if (!take(of_array ? "]]" : "]")) refuse("a heading of a table has no ] at its end");
    name = of_array ? "[[" + name + "]]" : "[" + name + "]";
    if (of_array) return append_table(*table, last, name);
    return new_table(add(*table, last, {Kind::table, line_, "", {}, {}}), name);
  }

  TomlTable* append_table(TomlTable& parent, const std::string& key, const std::string& name) {
    auto* array = const_cast<TomlValue*>(parent.find(key));
    if (array == nullptr) array = &add(parent, key, {Kind::array, line_, "", {}, {}});
    if (array->kind != Kind::array) refuse(key + " is not an array of tables");
    array->items.push_back({Kind::table, line_, "", {}, {}});
    return new_table(array->items.back(), name);
  }

  TomlTable* new_table(TomlValue& value, const std::string& name) {
    value.tables.emplace_back(file_, line_, name);
    return &value.tables.back();
  }

  TomlTable* last_table(TomlTable& parent, const std::string& key) {
    auto* value = const_cast<TomlValue*>(parent.find(key));
    if (value != nullptr && value->kind == Kind::array && !value->items.empty())
      value = &value->items.back();
    if (value == nullptr || value->kind != Kind::table)
      refuse("there is no table " + key + " above, which this one is part of");
    return &value->tables.front();
  }

  TomlValue& add(TomlTable& table, const std::string& key, TomlValue value) {
    if (const TomlValue* known = table.find(key))
      refuse(key + " is in line " + std::to_string(known->line) + " too; give it once");
    table.entries_.push_back({key, std::move(value)});
    return table.entries_.back().value;
  }

  void key_and_value(TomlTable& table) {
    const std::string name = key();
    skip_spaces();
    if (!take("=")) refuse("= and a value must follow the key " + one_line(name));
    const int line = line_;
    TomlValue read = value(name);
    read.line = line;
    add(table, name, std::move(read));
  }

  // Reads a value. `key`: the key before it, for error messages.
  TomlValue value(const std::string& key) {
    skip_spaces();
    const char next = at_end() ? '\n' : text_[at_];
    if (next == '"' || next == '\'') return {Kind::text, line_, quoted(), {}, {}};
    if (next == '[') return array(key);
    if (next == '{') return braces(key);
    const size_t end = std::min(text_.find_first_of(" \t\r\n#,]}", at_), text_.size());
    const std::string word = text_.substr(at_, end - at_);
    at_ = end;
    if (word == "true" || word == "false") return {Kind::boolean, line_, word, {}, {}};
    const bool is_number =
        !word.empty() && word.size() <= 15 &&
        word.find_first_not_of("0123456789", word[0] == '-' ? 1 : 0) == std::string::npos &&
        word != "-";
    if (is_number) return {Kind::number, line_, word, {}, {}};
    refuse(word.empty()
               ? "a value is missing"
               : one_line(word) + " is not a whole number, true or false; a text needs quotes");
  }

  TomlValue array(const std::string& key) {
    TomlValue array{Kind::array, line_, "", {}, {}};
    take("[");
    for (skip_lines(); !take("]"); skip_lines()) {
      if (at_end()) refuse("the array of line " + std::to_string(array.line) + " has no ]");
      array.items.push_back(value(key));
      skip_lines();
      if (!take(",") && !at_end() && text_[at_] != ']')
        refuse("a comma must separate the values of an array");
    }
    return array;
  }

  TomlValue braces(const std::string& key) {
    TomlValue table{Kind::table, line_, "", {}, {}};
    take("{");
    TomlTable* inside = new_table(table, key);
    for (skip_spaces(); !take("}"); skip_spaces()) {
      key_and_value(*inside);
      skip_spaces();
      if (!take(",") && (at_end() || text_[at_] != '}'))
        refuse("a table in braces has no } in its line");
    }
    return table;
  }

  // Reads a text in quotes: "", '', """ or '''.
  std::string quoted() {
    const int begin = line_;
    for (const char quote : {'"', '\''}) {
      const std::string three(3, quote);
      if (take(three)) {
        if (take("\n")) ++line_;  // a line feed right after the quotes does not belong to the text
        return text_until(three, quote == '"', true, begin);
      }
      if (take(three.substr(2))) return text_until(three.substr(2), quote == '"', false, begin);
    }
    refuse("a text is expected");
  }

  std::string text_until(const std::string& end, bool escapes, bool over_lines, int begin) {
    std::string found;
    while (!take(end)) {
      if (at_end() || (text_[at_] == '\n' && !over_lines))
        refuse("the text of line " + std::to_string(begin) + " has no quote at its end");
      if (text_[at_] == '\n') ++line_;
      if (escapes && text_[at_] == '\\')
        found += escaped();
      else
        found += text_[at_++];
    }
    return found;
  }

  std::string escaped() {
    static const std::vector<std::pair<std::string, std::string>> kEscapes{
        {"\\\"", "\""}, {"\\\\", "\\"}, {"\\n", "\n"}, {"\\t", "\t"}};
    for (const auto& [written, meant] : kEscapes)
      if (take(written)) return meant;
    refuse(
        "a quote, a backslash, n or t must follow a backslash; write '' around a text "
        "without escapes");
  }

  const std::string& text_;
  const std::string& file_;
  TomlTable root_;
  size_t at_{};
  int line_{1};
};

TomlTable::TomlTable(std::string file, int line, std::string name)
    : file_(std::move(file)), name_(std::move(name)), line_(line) {}

const TomlValue* TomlTable::find(const std::string& key) const {
  const auto found = std::ranges::find(entries_, key, &TomlEntry::key);
  return found == entries_.end() ? nullptr : &found->value;
}

const TomlValue& TomlTable::at(const std::string& key) const {
  const TomlValue* value = find(key);
  if (value == nullptr) refuse("lacks " + key);
  return *value;
}

void TomlTable::refuse(const std::string& why, const std::string& key) const {
  const TomlValue* value = find(key);
  const int line = value == nullptr ? line_ : value->line;
  throw TomlError(file_ + ":" + std::to_string(line) + ": " + name_ + " " + why);
}

bool TomlTable::has(const std::string& key) const {
  return find(key) != nullptr;
}

bool TomlTable::is_text(const std::string& key) const {
  return at(key).kind == Kind::text;
}

std::string TomlTable::text(const std::string& key) const {
  if (!is_text(key)) refuse("has a " + key + " that is not " + text_of_kind(Kind::text), key);
  return at(key).text;
}

std::string TomlTable::text(const std::string& key, const std::string& fallback) const {
  return has(key) ? text(key) : fallback;
}

int64_t TomlTable::number(const std::string& key) const {
  const TomlValue& value = at(key);
  if (value.kind != Kind::number)
    refuse("has a " + key + " that is not " + text_of_kind(Kind::number), key);
  return std::stoll(value.text);
}

bool TomlTable::flag(const std::string& key) const {
  if (!has(key)) return false;
  const TomlValue& value = at(key);
  if (value.kind != Kind::boolean)
    refuse("has a " + key + " that is not " + text_of_kind(Kind::boolean), key);
  return value.text == "true";
}

namespace {

// Appends the texts of the array `value` to `texts`. Returns false if `value` is not an array of
// texts.
bool texts_in(const TomlValue& value, std::vector<std::string>& texts) {
  for (const TomlValue& item : value.items) {
    if (item.kind != Kind::text) return false;
    texts.push_back(item.text);
  }
  return value.kind == Kind::array;
}

}  // namespace

std::vector<std::string> TomlTable::texts(const std::string& key) const {
  std::vector<std::string> texts;
  if (has(key) && !texts_in(at(key), texts))
    refuse("has a " + key + " that is not an array of texts, as in [\"a\", \"b\"]", key);
  return texts;
}

std::vector<std::vector<std::string>> TomlTable::lists_of_texts(const std::string& key) const {
  std::vector<std::vector<std::string>> lists;
  if (!has(key)) return lists;
  bool right = at(key).kind == Kind::array;
  for (const TomlValue& item : at(key).items)
    right = texts_in(item, lists.emplace_back()) && right;
  if (!right)
    refuse("has a " + key + " that is not an array of arrays of texts, as in [[\"a\", \"b\"]]",
           key);
  return lists;
}

std::vector<TomlTable> TomlTable::tables(const std::string& key) const {
  std::vector<TomlTable> tables;
  if (!has(key)) return tables;
  const TomlValue& value = at(key);
  for (const TomlValue& item : value.items)
    tables.insert(tables.end(), item.tables.begin(), item.tables.end());
  if (value.kind != Kind::array || tables.size() != value.items.size())
    refuse("has a " + key + " that is not an array of tables", key);
  return tables;
}

TomlTable TomlTable::table(const std::string& key) const {
  if (!has(key)) return {file_, line_, key};
  if (at(key).kind != Kind::table)
    refuse("has a " + key + " that is not " + text_of_kind(Kind::table), key);
  return at(key).tables.front();
}

std::vector<std::string> TomlTable::keys() const {
  std::vector<std::string> keys;
  for (const TomlEntry& entry : entries_)
    keys.push_back(entry.key);
  return keys;
}

void TomlTable::allow_only(const std::vector<std::string>& known) const {
  for (const std::string& key : keys())
    if (std::ranges::find(known, key) == known.end())
      refuse("has no key " + one_line(key) + "; it may have " + in_a_row(known, "and"), key);
}

std::string TomlTable::word(const std::string& key, const std::vector<std::string>& words) const {
  const std::string found = text(key);
  if (std::ranges::find(words, found) == words.end())
    refuse("has the " + key + " " + one_line(found) + ", which must be " + in_a_row(words, "or"),
           key);
  return found;
}

TomlTable parse_toml(const std::string& text, const std::string& file) {
  return TomlParser(text, file).parse();
}

}  // namespace fsdp
