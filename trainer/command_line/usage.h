#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <utility>
#include <vector>

// What is said of a command line that can't be carried out: always in our words, not in CLI11's.
namespace fsdp {

// The place of `text` among `words`. Throws UsageError "--mode must be single, ddp or fsdp, not
// fdsp" if it has none. With `ignore_case` the words are in small letters.
size_t index_of_word(const std::string& option, const std::string& text,
                     const std::vector<std::string>& words, bool ignore_case = false);

// Checks that each value of an option is one of `words`.
CLI::Validator one_of(const std::string& option, const std::vector<std::string>& words);

// An option that takes one of some words, each with the value that goes into `target`.
template <typename Target, typename Value>
CLI::Option* add_choice(CLI::App& app, const std::string& name, Target& target,
                        const std::vector<std::pair<std::string, Value>>& choices,
                        const std::string& help) {
  std::vector<std::string> words;
  std::string type;
  for (const auto& [word, value] : choices) {
    words.push_back(word);
    type += (type.empty() ? "" : "|") + word;
  }
  const auto take = [&target, name, words, choices](const std::string& text) {
    target = choices[index_of_word(name, text, words)].second;
  };
  return app.add_option_function<std::string>(name, take, help)->type_name(type);
}

// The same for a text that is the word itself.
CLI::Option* add_choice(CLI::App& app, const std::string& name, std::string& target,
                        const std::vector<std::string>& words, const std::string& help);

// Says that there is no option NAME, and names the nearest one, by its letters or by what its help
// says: `dashes` stands before either. `others`: names of options that the program takes too.
std::string unknown_option(const CLI::App& app, const std::string& name, const std::string& dashes,
                           const std::vector<std::string>& others = {});

// What is wrong, in one line, when CLI11 has refused `arguments` with this error.
std::string text_of_refusal(const CLI::App& app, const CLI::Error& error,
                            const std::vector<std::string>& arguments,
                            const std::vector<std::string>& others);

}  // namespace fsdp
