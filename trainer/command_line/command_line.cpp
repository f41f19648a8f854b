#include <base/standard_output.h>
#include <base/text.h>
#include <command_line/child.h>
#include <command_line/command_line.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
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

}  // namespace

void parse_command_line(CLI::App& app, std::vector<std::string> arguments,
                        const std::function<void()>& check) {
  try {
    std::ranges::reverse(arguments);  // as CLI11 wants them
    app.parse(std::move(arguments));
    check();
  } catch (const CLI::CallForHelp&) {
    constexpr size_t kColumns = 100;
    std::fputs(wrap(app.help(), kColumns, app.get_formatter()->get_column_width()).c_str(), stdout);
    const std::string lost = lost_output();
    if (!lost.empty()) throw std::runtime_error(lost);
    std::exit(0);
  } catch (const CLI::ConfigError& error) {
    const std::string what = error.what(), begin = "INI was not able to parse ";
    if (!what.starts_with(begin)) throw UsageError(what);
    throw UsageError("--config: there is no option --" + what.substr(begin.size()));
  } catch (const std::exception& error) {
    throw UsageError(error.what());
  }
}

void check_output(const std::string& option, const std::string& path, const std::string& reason) {
  if (path == "-") throw UsageError(option + " -: names no file; give /dev/stdout");
  if (!reason.empty()) throw UsageError(option + ' ' + path + ": " + reason);
}

int run_program(const std::string& name, const std::function<int()>& body) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file that gets too large is an error of its writer
  try {
    const int status = body();
    const std::string lost = lost_output();
    if (status == 0 && !lost.empty()) throw std::runtime_error(lost);
    return status;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    return 1;
  } catch (const Interrupted& interrupted) {
    std::signal(interrupted.signal, SIG_DFL);
    raise(interrupted.signal);
    _exit(128 + interrupted.signal);
  }
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
  const bool below = text.starts_with('-');  // no option takes a negative number
  const auto [rest, error] = std::from_chars(text.data() + (below ? 1 : 0), end, number);
  if (error == std::errc::invalid_argument || rest != end) {
    refuse(kReal ? "a number" : "a whole number");
  }
  bool above = error == std::errc::result_out_of_range;
  if constexpr (kReal) {
    if (above) number = std::strtod(text.c_str(), nullptr);  // infinite, or 0
    above = false;
  }
  above = above || number > range.most;
  if (below || !(above || number >= range.least)) refuse(least);  // so is NaN
  if (above)
    refuse(kReal && range.most == Limits::max() ? least : "at most " + written(range.most));
  return number;
}

template int64_t parse_number(const std::string&, const std::string&, NumberRange<int64_t>);
template uint64_t parse_number(const std::string&, const std::string&, NumberRange<uint64_t>);
template double parse_number(const std::string&, const std::string&, NumberRange<double>);

}  // namespace fsdp
