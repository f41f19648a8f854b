#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <utility>
#include <vector>

// The texts of error messages about mistakes in a command line. They replace the texts of CLI11.
namespace fsdp {

// Returns the index of `text` in `words`. With `ignore_case`, `text` may have capital letters;
// `words` must be in small letters. Throws UsageError "--mode must be single, ddp or fsdp, not
// fdsp" if `text` is not one of the words.
size_t index_of_word(const std::string& option, const std::string& text,
                     const std::vector<std::string>& words, bool ignore_case = false);

// Returns a check for CLI11: each value of `option` must be one of `words`.
CLI::Validator one_of(const std::string& option, const std::vector<std::string>& words);

// Adds the option `name`, which takes one of the words in `choices` and stores the value that
// belongs to the word in `target`.
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

// Adds the option `name`, which takes one of `words` and stores the word itself in `target`.
CLI::Option* add_choice(CLI::App& app, const std::string& name, std::string& target,
                        const std::vector<std::string>& words, const std::string& help);

// Returns the message that there is no option `name`. It suggests the option whose name has the
// nearest spelling, or one whose name or help has a word of `name`. `dashes` ("--" or "") is put
// before `name` and before the suggested name. `others`: names of options that the program takes
// and `app` does not have; they may be suggested too.
std::string unknown_option(const CLI::App& app, const std::string& name, const std::string& dashes,
                           const std::vector<std::string>& others = {});

// Returns one line that says what is wrong with the command line `arguments`, for which CLI11 has
// thrown `error`. `others`: names of options that the program takes and `app` does not have; the
// message may suggest one of them.
std::string text_of_refusal(const CLI::App& app, const CLI::Error& error,
                            const std::vector<std::string>& arguments,
                            const std::vector<std::string>& others);

}  // namespace fsdp
