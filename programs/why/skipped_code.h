#pragma once

#include <why/source_lines.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fsdp {

// Lines of a function that never ran, although the line before them did: a condition or a loop has
// passed them over.
struct SkippedCode {
  CodeLine decides;     // the last line that ran
  int first{}, last{};  // the lines that did not
  uint64_t time{};      // at which `decides` ran last
  // Says what `decides` is: a jump out of a loop or a function, a loop without a round, a
  // condition.
  enum class Kind { jump, loop, condition } kind{};
};

// Returns the skipped code in these lines: jumps, then loops, then conditions, and of each kind
// what was decided last first. `reached` has the addresses that were reached, and when each was
// reached last. Up to three lines that throw, and one branch of an if and else, do not count as
// skipped code: in right runs they do not run either.
std::vector<SkippedCode> skipped_code(const std::vector<CodeLine>& lines,
                                      const std::map<uint64_t, uint64_t>& reached);

}  // namespace fsdp
