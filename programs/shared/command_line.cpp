#include <shared/command_line.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace fsdp {
namespace {

template <typename Number>
std::string written(Number number) {
  std::ostringstream text;
  text.precision(10);
  text << number;
  return text.str();
}

}  // namespace

void parse_command_line(CLI::App& app, int argc, char** argv, const std::function<void()>& check) {
  try {
    app.parse(argc, argv);
    check();
  } catch (const CLI::CallForHelp& help) {
    std::exit(app.exit(help));
  } catch (const std::exception& error) {
    throw UsageError(error.what());
  }
}

int run_program(const std::string& name, const std::function<int()>& body) {
  try {
    return body();
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    return 1;
  }
}

template <typename Number>
Number parse_number(const std::string& option, const std::string& text, NumberRange<Number> range) {
  const auto refuse = [&](const std::string& rule) {
    throw UsageError(option + " must be " + rule + ", not " + text);
  };
  constexpr bool kReal = std::is_floating_point_v<Number>;
  const std::string least = kReal && range.least == std::numeric_limits<Number>::min()
                                ? "a positive number"
                                : "at least " + written(range.least);
  Number number{};
  const char* const end = text.data() + text.size();
  const bool below = text.starts_with('-');  // no option takes a negative number
  const auto [rest, error] = std::from_chars(text.data() + (below ? 1 : 0), end, number);
  if (error == std::errc::invalid_argument || rest != end) {
    refuse(kReal ? "a number" : "a whole number");
  }
  const bool out_of_range = error == std::errc::result_out_of_range;
  bool above = out_of_range || number > range.most;
  if constexpr (kReal) {
    if (out_of_range) number = std::strtod(text.c_str(), nullptr);  // infinite, or 0
    const bool bounded = range.most < std::numeric_limits<Number>::max();
    if (!std::isfinite(number) && !(bounded && number > 0)) refuse(least);
    above = number > range.most;
  }
  if (below || (!above && number < range.least)) refuse(least);
  if (above) refuse("at most " + written(range.most));
  return number;
}

template int64_t parse_number(const std::string&, const std::string&, NumberRange<int64_t>);
template uint64_t parse_number(const std::string&, const std::string&, NumberRange<uint64_t>);
template double parse_number(const std::string&, const std::string&, NumberRange<double>);

}  // namespace fsdp
