#include <command_line/run_program.h>
#include <options/pattern_check.h>

#include <regex>

namespace fsdp {

void check_pattern(const std::string& option, const std::string& pattern) {
  // A longer expression can be nested so deep that std::regex overflows the stack.
  constexpr size_t kLongest = 500;
  try {
    if (pattern.size() <= kLongest) return static_cast<void>(std::regex(pattern));
  } catch (const std::regex_error&) {
    throw UsageError(option + ' ' + pattern + ": not a regular expression");
  }
  throw UsageError(option + ": takes at most " + std::to_string(kLongest) + " characters");
}

}  // namespace fsdp
