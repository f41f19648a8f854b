#include <base/plain_error.h>
#include <base/standard_output.h>
#include <base/text.h>
#include <command_line/command_line.h>
#include <command_line/config_file.h>
#include <command_line/usage.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <utility>

namespace fsdp {
namespace {

template <typename Number>
std::string written(Number number) {
  std::ostringstream text;
  text.precision(10);
  text << number;
  return text.str();
}

// If `error` begins with the name of an option whose value comes from the file of --config, returns
// the place of that value, such as " (line 3 of run.toml)". Returns "" for other errors, and if the
// option is among `arguments`, the command line.
std::string place_of(const CLI::App& app, const std::string& error,
                     const std::vector<std::string>& arguments) {
  const std::string option = error.substr(0, error.find_first_of(": "));
  const bool given = std::ranges::any_of(arguments, [&](const std::string& argument) {
    return argument == option || argument.starts_with(option + '=');
  });
  return given || !option.starts_with("--") ? "" : place_in_config(app, option);
}

}  // namespace

void parse_command_line(CLI::App& app, std::vector<std::string> arguments,
                        const std::function<void()>& check,
                        const std::vector<std::string>& other_options) {
  const std::vector<std::string> given = arguments;
  try {
    std::ranges::reverse(arguments);  // CLI11 expects the arguments in reverse order
    app.parse(std::move(arguments));
    check();
  } catch (const CLI::CallForHelp&) {
    constexpr size_t kColumns = 100;
    std::fputs(wrap(app.help(), kColumns, app.get_formatter()->get_column_width()).c_str(), stdout);
    const std::string lost = lost_output();
    if (!lost.empty()) throw std::runtime_error(lost);
    std::exit(0);
  } catch (const CLI::Error& error) {
    const std::string text = text_of_refusal(app, error, given, other_options);
    throw UsageError(text + place_of(app, text, given));
  } catch (const std::exception& error) {
    const std::string text = plain_text(error);
    throw UsageError(text + place_of(app, text, given));
  }
}

void add_advice(CLI::App& app, const std::string& name, const std::string& advice) {
  const std::string text = "there is no option " + name + "; " + advice;
  app.add_option_function<std::string>(
         name, [text](const std::string&) { throw UsageError(text); }, text)
      ->expected(0, 1)
      ->group("")
      ->configurable(false);
}

template <typename Number>
Number parse_number(const std::string& option, const std::string& text, NumberRange<Number> range) {
  const auto refuse = [&](const std::string& rule) {
    throw UsageError(option + " must be " + rule + ", not " + text);
  };
  constexpr bool kReal = std::is_floating_point_v<Number>;
  using Limits = std::numeric_limits<Number>;
  const std::string least = kReal && range.least == Limits::min()
                                ? "a positive number"
                                : "at least " + written(range.least);
  Number number{};
  const char* const end = text.data() + text.size();
  // No option takes a negative number, so a text that begins with - is refused as a number that is
  // below the range of the option.
  const bool below = text.starts_with('-');
  const auto [rest, error] = std::from_chars(text.data() + (below ? 1 : 0), end, number);
  if (error == std::errc::invalid_argument || rest != end) {
    refuse(kReal ? "a number" : "a whole number");
  }
  bool above = error == std::errc::result_out_of_range;
  if constexpr (kReal) {
    // from_chars() reports an error if a double can't hold the number, and does not store a number.
    // strtod() stores infinity if the number is too large, and 0 or a denormal number if it is too
    // small. The comparisons below decide whether the stored number is in the range.
    if (above) number = std::strtod(text.c_str(), nullptr);
    above = false;
  }
  above = above || number > range.most;
  // The next line also refuses the number NaN, because NaN is not at least `range.least`.
  if (below || !(above || number >= range.least)) refuse(least);
  if (above)
    refuse(kReal && range.most == Limits::max() ? least : "at most " + written(range.most));
  return number;
}

CLI::Option* add_numbers(CLI::App& app, const std::string& name, std::vector<int>& target,
                         NumberRange<int64_t> range, const std::string& help) {
  const auto take = [&target, name, range](const std::vector<std::string>& texts) {
    target.clear();
    for (const std::string& text : texts)
      target.push_back(static_cast<int>(parse_number(name, text, range)));
  };
  return app.add_option_function<std::vector<std::string>>(name, take, help)
      ->delimiter(',')
      ->type_name("INT,...");
}

template int64_t parse_number(const std::string&, const std::string&, NumberRange<int64_t>);
template uint64_t parse_number(const std::string&, const std::string&, NumberRange<uint64_t>);
template double parse_number(const std::string&, const std::string&, NumberRange<double>);

}  // namespace fsdp
