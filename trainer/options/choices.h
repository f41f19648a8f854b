#pragma once

#include <command_line/usage.h>

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace fsdp {

// Returns the pairs of a word and a value that add_choice() takes: one for each of `values`, with
// the word that to_string() returns.
template <typename Enum>
std::vector<std::pair<std::string, Enum>> choices_of(std::initializer_list<Enum> values) {
  std::vector<std::pair<std::string, Enum>> choices;
  for (const Enum value : values)
    choices.emplace_back(to_string(value), value);
  return choices;
}

// Adds the option `name`, which takes on or off and stores it in `value`. Its help ends with the
// default, which is the current `value`.
void add_on_off(CLI::App& app, const std::string& name, bool& value, const std::string& help);

}  // namespace fsdp
