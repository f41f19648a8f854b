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

// A table of a TOML file. It stores its file and line, which its errors name. A function that reads
// a value throws TomlError if the value has another type than the function returns. A function
// without a fallback also throws TomlError if there is no such key, unless its comment gives a
// default.
class TomlTable {
 public:
  // `name`: the name of the table in error messages, such as "[[task]]".
  TomlTable(std::string file, int line, std::string name);

  bool has(const std::string& key) const;
  std::string text(const std::string& key) const;
  std::string text(const std::string& key, const std::string& fallback) const;
  int64_t number(const std::string& key) const;
  // Returns the value true or false of `key`; false if the table has no such key.
  bool flag(const std::string& key) const;
  // Returns the array of texts `key`; an empty list if the table has no such key.
  std::vector<std::string> texts(const std::string& key) const;
  // Returns the array of arrays of texts `key`; an empty list if the table has no such key.
  std::vector<std::vector<std::string>> lists_of_texts(const std::string& key) const;
  // Returns the tables in the array `key`, which the file has as [[KEY]] or as an array of tables
  // in braces; an empty list if this table has no such key.
  std::vector<TomlTable> tables(const std::string& key) const;
  // Returns the table `key`, which the file has as [KEY] or in braces; an empty table if this table
  // has no such key.
  TomlTable table(const std::string& key) const;
  bool is_text(const std::string& key) const;
  std::vector<std::string> keys() const;  // all keys of the table, in the order of the file

  // Throws TomlError if the table has a key that is not among `known`.
  void allow_only(const std::vector<std::string>& known) const;
  // Returns the text of `key`. Throws TomlError if this text is not one of `words`.
  std::string word(const std::string& key, const std::vector<std::string>& words) const;
  // Throws TomlError "FILE:LINE: NAME `why`". LINE is the line of `key` if the table has this key,
  // else the line of the table.
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
  // Kind::text: the text. Kind::number and Kind::boolean: the value as written in the file.
  std::string text;
  std::vector<TomlValue> items;   // Kind::array: its values
  std::vector<TomlTable> tables;  // Kind::table: one element, the table; else empty
};

struct TomlEntry {
  std::string key;
  TomlValue value;
};

// Parses `text`, the content of a file of this repository: course.toml and the tables of
// `reproduce`. (The options of train have a parser of their own, config_file.h, which keeps a value
// as it is written.)
// - Reads [table], [[table]], key = value, comments; texts in "", '', """ and '''; whole numbers,
//   true and false; arrays; tables in braces, on one line.
// - Does not read other numbers, dates, or dotted keys of values.
// Throws: TomlError, which names `file`, for anything that it does not read, and if a table has a
// key twice.
TomlTable parse_toml(const std::string& text, const std::string& file);

}  // namespace fsdp
