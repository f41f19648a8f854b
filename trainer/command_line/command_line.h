#pragma once

#include <base/plain_error.h>
#include <command_line/run_program.h>
#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

namespace fsdp {

// Parses the command line (without the program's name), then calls `check`, which may throw any
// std::exception.
// - If the command line asks for help, prints it and ends the process with status 0.
// - `other_options`: names, without dashes, of options that the caller has taken out of `arguments`
//   itself. The message for an unknown option may suggest one of them.
// Throws:
// - UsageError for a mistake in the command line, and if `check` throws; if the file of --config
//   sets the option that the error is about, the message names the file and the line;
// - std::runtime_error if the help can't be printed.
void parse_command_line(
    CLI::App& app, std::vector<std::string> arguments, const std::function<void()>& check = [] {},
    const std::vector<std::string>& other_options = {});

// Calls `function` and returns its result. If `function` throws a std::exception, throws UsageError
// with the text of the exception after `option`: for a function that reads FILE, "--tokens FILE: no
// such file".
template <typename Function>
auto naming_option(const std::string& option, const Function& function) {
  try {
    return function();
  } catch (const std::exception& error) {
    throw UsageError(option + ' ' + plain_text(error));
  }
}

// For a `name` that is not an option of the program, but that users expect: if the user gives it,
// the parser throws UsageError "there is no option NAME; ADVICE", and ADVICE says what to use
// instead. The help does not show `name`.
void add_advice(CLI::App& app, const std::string& name, const std::string& advice);

// The smallest and the largest number that an option accepts.
template <typename Number>
struct NumberRange {
  Number least;
  Number most;
};
// The largest value of an option that counts things, such as steps. A larger value is a typing
// error, and numbers computed from it could overflow.
inline constexpr int64_t kMany = 1'000'000'000;
inline constexpr NumberRange<double> positive_up_to(double most) {
  return {std::numeric_limits<double>::min(), most};
}

// Converts `text` to a number. Number: int64_t, uint64_t or double. Throws UsageError if `text` is
// not a number in `range`: "--batch must be at least 1, not 0" or "--lr must be a positive number,
// not nan".
template <typename Number>
Number parse_number(const std::string& option, const std::string& text, NumberRange<Number> range);

// Adds the option `name`, which takes a number in `range` and stores it in `target`: a number, or a
// std::optional of a number.
template <typename Target, typename Number>
void add_number(CLI::App& app, const std::string& name, Target& target, NumberRange<Number> range,
                const std::string& help) {
  const auto take = [&target, name, range](const std::string& text) {
    target = static_cast<Target>(parse_number<Number>(name, text, range));
  };
  app.add_option_function<std::string>(name, take, help)
      ->type_name(std::is_floating_point_v<Number> ? "NUMBER" : "INT");
}

// Adds the option `name`, which takes several whole numbers, separated by commas, and stores them
// in `target`. Each number must be in `range`.
CLI::Option* add_numbers(CLI::App& app, const std::string& name, std::vector<int>& target,
                         NumberRange<int64_t> range, const std::string& help);

}  // namespace fsdp
