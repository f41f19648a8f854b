#include <base/text.h>
#include <base/whole_file.h>
#include <command_line/command_line.h>
#include <command_line/usage.h>

#include <algorithm>
#include <numeric>
#include <sstream>

namespace fsdp {
namespace {

std::string in_small_letters(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// Returns the smallest number of edits that change `a` into `b`. One edit inserts, removes or
// replaces a letter, or swaps two neighbouring letters.
size_t distance_between(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> rows(a.size() + 1, std::vector<size_t>(b.size() + 1));
  std::iota(rows[0].begin(), rows[0].end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    rows[i][0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = a[i - 1] == b[j - 1];
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + !same});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
    }
  }
  return rows[a.size()][b.size()];
}

bool has_word(const std::string& text, const std::string& word) {
  std::string spaced = ' ' + in_small_letters(text) + ' ';
  std::ranges::replace_if(
      spaced, [](unsigned char c) { return std::isalnum(c) == 0; }, ' ');
  return spaced.find(' ' + word + ' ') != std::string::npos;
}

// Returns the name among `known` that is nearest to `name`; "" if none is near. A name is near if
// at most a third of the letters of `name` (or one letter) must be changed. It is also near if one
// of the two names begins with the other and both have at least three letters.
std::string near_by_letters(const std::string& name, const std::vector<std::string>& known) {
  std::string nearest;
  size_t least = 2 * (1 + std::max<size_t>(1, name.size() / 3));
  for (const std::string& one : known) {
    size_t distance = distance_between(name, one);
    const bool begins = name.size() >= 3 && (one.starts_with(name) || name.starts_with(one));
    if (begins && one.size() >= 3) distance = std::min<size_t>(distance, 1);
    // Of two known names at the same distance, the one with as many letters as `name` is nearer.
    const size_t score = 2 * distance + (one.size() != name.size());
    if (score < least) {
      least = score;
      nearest = one;
    }
  }
  return nearest;
}

std::vector<const CLI::Option*> long_options(const CLI::App& app) {
  std::vector<const CLI::Option*> options;
  for (const CLI::Option* option : app.get_options())
    if (!option->get_lnames().empty() && !option->get_group().empty()) options.push_back(option);
  return options;
}

// Returns the name of an option that has a word in common with `name`; "" if there is none. Looks
// for the words of `name` with at least four letters, one after another, first in the names of all
// options and then in their help.
std::string near_by_words(const std::string& name, const CLI::App& app) {
  std::string words = name;
  std::ranges::replace(words, '-', ' ');
  std::ranges::replace(words, '_', ' ');
  std::istringstream list(words);
  for (std::string word; list >> word;) {
    if (word.size() < 4) continue;
    for (const bool in_help : {false, true})
      for (const CLI::Option* option : long_options(app))
        if (has_word(in_help ? option->get_description() : option->get_lnames().front(), word))
          return option->get_lnames().front();
  }
  return "";
}

// Returns the option whose name stands in `text`, an error text of CLI11; null if there is none. Of
// several options, returns the one with the longest name.
const CLI::Option* option_named_in(const CLI::App& app, const std::string& text) {
  const CLI::Option* found = nullptr;
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    const size_t at = text.find(name), end = at + name.size();
    const bool whole = at != std::string::npos && (end == text.size() || text[end] == ':' ||
                                                   text[end] == ' ' || text[end] == ',');
    if (whole && (found == nullptr || name.size() > found->get_name().size())) found = option;
  }
  return found;
}

int64_t times(const std::vector<std::string>& arguments, const CLI::Option& option) {
  return std::ranges::count_if(arguments, [&](const std::string& argument) {
    return option.check_name(argument.substr(0, argument.find('=')));
  });
}

std::string wrong_count(const CLI::App& app, const std::string& what,
                        const std::vector<std::string>& arguments) {
  const CLI::Option* option = option_named_in(app, what);
  if (option == nullptr) return what;
  const std::string name = option->get_name();
  if (option->get_expected_max() == 0) return name + ": takes no value";
  if (times(arguments, *option) > 1) return name + ": is given more than once";
  if (static_cast<int>(option->count()) > option->get_expected_max())
    return name + ": takes at most " + counted(option->get_expected_max(), "value");
  return name + ": needs a value: " + option->get_description();
}

std::string unexpected(const CLI::App& app, const std::vector<std::string>& others) {
  const auto left = app.remaining();
  for (const std::string& one : left) {
    const size_t name = one.find_first_not_of('-');
    if (name != 0 && name != std::string::npos)
      return unknown_option(app, one.substr(name), "--", others);
  }
  return left.empty() ? "too many words" : one_line(left[0]) + ": belongs to no option";
}

std::string contradiction(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0) continue;
    for (const CLI::Option* other : option->get_needs())
      if (other->count() == 0) return option->get_name() + ": needs " + other->get_name();
    for (const CLI::Option* other : option->get_excludes())
      if (other->count() > 0)
        return option->get_name() + " and " + other->get_name() + ": give one of them";
  }
  return "the options contradict one another";
}

template <class Kind>
bool is_a(const CLI::Error& error) {
  return dynamic_cast<const Kind*>(&error) != nullptr;
}

// Returns the message about a required option that is missing. If a word of the command line
// belongs to no option, the message is about this word instead, because it may be the required
// option, misspelled.
std::string missing(const CLI::App& app, const std::vector<std::string>& others) {
  if (app.remaining_size() > 0) return unexpected(app, others);
  for (const CLI::Option* option : app.get_options())
    if (option->get_required() && option->count() == 0)
      return option->get_name() + ": must be given: " + option->get_description();
  return "an option is missing";
}

}  // namespace

size_t index_of_word(const std::string& option, const std::string& text,
                     const std::vector<std::string>& words, bool ignore_case) {
  const auto found = std::ranges::find(words, ignore_case ? in_small_letters(text) : text);
  if (found == words.end())
    throw UsageError(option + " must be " + in_a_row(words, "or") + ", not " + one_line(text));
  return static_cast<size_t>(found - words.begin());
}

CLI::Validator one_of(const std::string& option, const std::vector<std::string>& words) {
  return {[option, words](std::string& text) {
            index_of_word(option, text, words);
            return std::string();
          },
          ""};
}

CLI::Option* add_choice(CLI::App& app, const std::string& name, std::string& target,
                        const std::vector<std::string>& words, const std::string& help) {
  std::vector<std::pair<std::string, std::string>> choices;
  for (const std::string& word : words)
    choices.emplace_back(word, word);
  return add_choice(app, name, target, choices, help);
}

std::string unknown_option(const CLI::App& app, const std::string& name, const std::string& dashes,
                           const std::vector<std::string>& others) {
  const std::string bare = one_line(name.substr(0, name.find('=')));
  std::vector<std::string> known = others;
  for (const CLI::Option* option : long_options(app))
    known.insert(known.end(), option->get_lnames().begin(), option->get_lnames().end());
  std::string nearest = near_by_letters(bare, known);
  if (nearest.empty()) nearest = near_by_words(bare, app);
  return "there is no option " + dashes + bare + "; " +
         (nearest.empty() ? "--help lists all" : "the nearest one is " + dashes + nearest);
}

std::string text_of_refusal(const CLI::App& app, const CLI::Error& error,
                            const std::vector<std::string>& arguments,
                            const std::vector<std::string>& others) {
  std::string what = error.what();
  if (is_a<CLI::ExtrasError>(error)) return unexpected(app, others);
  if (is_a<CLI::ArgumentMismatch>(error)) return wrong_count(app, what, arguments);
  if (is_a<CLI::RequiredError>(error)) return missing(app, others);
  if (is_a<CLI::RequiresError>(error) || is_a<CLI::ExcludesError>(error)) return contradiction(app);
  if (is_a<CLI::FileError>(error) && app.get_config_ptr() != nullptr) {
    const std::string path = app.get_config_ptr()->results().back();
    const std::string reason = reason_not_to_read(path);
    return "--config " + path + ": " + (reason.empty() ? "can't be read" : reason);
  }
  const CLI::Option* option = option_named_in(app, what);
  if (option == nullptr || option->results().empty()) return what;
  return option->get_name() + ": can't take " + one_line(option->results().back()) +
         "; --help describes its values";
}

}  // namespace fsdp
