#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace fsdp {

// A mistake in a TOML file: "course.toml:12: [[task]] lacks name".
struct TomlError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct TomlEntry;

// A table of a TOML file. It knows where it stands, so that its errors name file and line.
// Every function that reads a value throws TomlError if the value has another type than asked for;
// one without a fallback also if there is no such key.
class TomlTable {
 public:
  // `name`: what errors call it, as "[[task]]".
  TomlTable(std::string file, int line, std::string name);

  bool has(const std::string& key) const;
  std::string text(const std::string& key) const;
  std::string text(const std::string& key, const std::string& fallback) const;
  int64_t number(const std::string& key) const;
  bool flag(const std::string& key) const;  // false if there is no such key
  // An empty list if there is no such key.
  std::vector<std::string> texts(const std::string& key) const;
  std::vector<std::vector<std::string>> lists_of_texts(const std::string& key) const;
  // The tables of [[KEY]], or those in an array; none if there is no such key.
  std::vector<TomlTable> tables(const std::string& key) const;
  // The table of [KEY], or the one in braces; an empty one if there is no such key.
  TomlTable table(const std::string& key) const;
  bool is_text(const std::string& key) const;
  std::vector<std::string> keys() const;  // in the order of the file

  // Throws TomlError if the table has a key that is not among `known`.
  void allow_only(const std::vector<std::string>& known) const;
  // Throws TomlError if the value of `key` is not among `words`; else returns it.
  std::string word(const std::string& key, const std::vector<std::string>& words) const;
  // Throws TomlError "FILE:LINE: NAME `why`": at the line of `key`, if there is such a key.
  [[noreturn]] void refuse(const std::string& why, const std::string& key = "") const;

 private:
  friend class TomlParser;
  const struct TomlValue* find(const std::string& key) const;
  const TomlValue& at(const std::string& key) const;

  std::string file_, name_;
  int line_;
  std::vector<TomlEntry> entries_;
};

struct TomlValue {
  enum class Kind { text, number, boolean, array, table };
  Kind kind{};
  int line{};
  std::string text;               // of a text; of a number or boolean as the file writes it
  std::vector<TomlValue> items;   // of an array
  std::vector<TomlTable> tables;  // the one of a table
};

struct TomlEntry {
  std::string key;
  TomlValue value;
};

// Reads a file that is part of this repository, and was read into `text`: course.toml and the
// tables of `reproduce`. (Options of train have a reader of their own, config_file.h, which keeps a
// value as it is written.)
// - Known are [table], [[table]], key = value, comments; texts in "", '', """ and '''; whole
//   numbers, true and false; arrays; tables in braces, on one line.
// - Not known are other numbers, dates and dotted keys of values.
// Throws TomlError for anything else, and for a key that comes twice in a table.
TomlTable parse_toml(const std::string& text, const std::string& file);

}  // namespace fsdp
