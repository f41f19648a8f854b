#pragma once

#include <why/source_lines.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fsdp {

// Lines of a function that never ran although the line before them ran: that line is a jump, a loop
// or a condition that passed over them.
struct SkippedCode {
  CodeLine decides;     // the line that ran, before the skipped lines
  int first{}, last{};  // the numbers of the first and the last skipped line
  uint64_t number{};    // number of the action with which the line `decides` ran last
  // What the line `decides` is: a jump out of a loop or a function, a loop whose body did not run,
  // or a condition that was false.
  enum class Kind { jump, loop, condition } kind{};
};

// Returns the skipped code among `lines`: first what jumps skipped, then loops, then conditions;
// within each kind, the latest decision first. `reached`: the addresses that the rank reached, and
// the number of the action with which it reached each one last. These do not count as skipped code,
// because in right runs they often do not run either: up to three lines with a throw, and a branch
// that has an else.
std::vector<SkippedCode> skipped_code(const std::vector<CodeLine>& lines,
                                      const std::map<uint64_t, uint64_t>& reached);

}  // namespace fsdp
