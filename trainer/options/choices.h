#pragma once

#include <command_line/usage.h>

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace fsdp {

// Returns values of an enum with their words, for add_choice().
template <typename Enum>
std::vector<std::pair<std::string, Enum>> choices_of(std::initializer_list<Enum> values) {
  std::vector<std::pair<std::string, Enum>> choices;
  for (const Enum value : values)
    choices.emplace_back(to_string(value), value);
  return choices;
}

// Adds an option that is on or off. Its help ends with the default, which is the current `value`.
void add_on_off(CLI::App& app, const std::string& name, bool& value, const std::string& help);

}  // namespace fsdp
