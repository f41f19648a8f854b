#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace fsdp {

// A command line that can't be carried out; what() is the line to print.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Parses the command line, which is without the program's name, then calls `check`, which may throw
// std::exception. Throws UsageError for a mistake. When the command line asks for help, prints it
// and ends the process with status 0, or throws std::runtime_error if that can't be printed.
// An error of an option that stands in the file of --config names the file and the line.
// `other_options`: names without dashes, that the caller takes from the command line before; an
// unknown option may be meant as one of them.
void parse_command_line(
    CLI::App& app, std::vector<std::string> arguments, const std::function<void()>& check = [] {},
    const std::vector<std::string>& other_options = {});

// What main() returns: what `body` returns, 2 for a UsageError, 1 for another exception, or if what
// the program has printed could not be written; prints either on stderr after the program's name.
// Ends the process by the signal that a call of run_child() was interrupted by.
int run_program(const std::string& name, const std::function<int()>& body);

// Throws UsageError "--json FILE: Permission denied" if there is a reason not to write that file.
void check_output(const std::string& option, const std::string& path, const std::string& reason);

// The numbers that an option takes.
template <typename Number>
struct NumberRange {
  Number least;
  Number most;
};
// The most of what is counted: more is a slip of the pen, and would overflow.
inline constexpr int64_t kMany = 1'000'000'000;
inline constexpr NumberRange<double> positive_up_to(double most) {
  return {std::numeric_limits<double>::min(), most};
}

// The number that `text` writes. Throws UsageError "--batch must be at least 1, not 0", "--lr must
// be a positive number, not nan". Number: int64_t, uint64_t or double.
template <typename Number>
Number parse_number(const std::string& option, const std::string& text, NumberRange<Number> range);

// An option with a number, which goes into `target`: a number, or a std::optional of one.
template <typename Target, typename Number>
void add_number(CLI::App& app, const std::string& name, Target& target, NumberRange<Number> range,
                const std::string& help) {
  const auto take = [&target, name, range](const std::string& text) {
    target = static_cast<Target>(parse_number<Number>(name, text, range));
  };
  app.add_option_function<std::string>(name, take, help)
      ->type_name(std::is_floating_point_v<Number> ? "NUMBER" : "INT");
}

// An option with several whole numbers, separated by commas.
CLI::Option* add_numbers(CLI::App& app, const std::string& name, std::vector<int>& target,
                         NumberRange<int64_t> range, const std::string& help);

}  // namespace fsdp
