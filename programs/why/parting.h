#pragma once

#include <why/source_lines.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace fsdp {

// Something that a rank did in a test, as far as a run of another program can be compared with it.
struct Step {
  // - function: a function of the tasks was entered or went on;
  // - call: code of the tasks called an operator of torch;
  // - issue, wait: of a collective;
  // - read: a number was read from a tensor (item()).
  enum class Kind { function, call, issue, wait, read };

  Kind kind{};
  std::string name;      // of the function, of the operator or of the collective
  uint64_t arguments{};  // hash of the operator's arguments; 0 if it is no call
  // The lines of the tested task that were running, innermost function first. For a function that
  // belongs to the tested task, its last line before the next step.
  std::vector<SourceLine> own;
  // True if the line of a function is its closing brace, which decides nothing.
  bool leaves{};
};

// Lists what one rank did in a test, up to the wrong observation.
struct StepsOfRank {
  std::vector<Step> steps;
  std::set<std::string> functions;  // all functions of the tested task that the program has
};

// Describes where a student's run of a test parts from that of the reference solution.
struct Parting {
  SourceLine line;        // the student's line that decided what came next
  std::string yours;      // what the student's code did next: "issued all_gather h.0"
  std::string reference;  // what the reference solution did next
};

// Returns the first difference between two runs of the same test; nothing if there is none.
// - If the student's code has the functions of the reference solution, all steps are compared:
//   operators with their arguments, collectives, and functions that both programs have. If the same
//   function calls the same operator with other arguments, `line` is the line that calls it; else
//   the last line before the difference.
// - If it has not, other code may be right too, so only what any solution must do in the same order
//   is compared: when collectives are issued and first waited for, and when numbers are read.
//   `line` is the last line of the function that has left a step out, if both programs have this
//   function and it ran; else the line that did what differs, or the last line of all.
std::optional<Parting> find_parting(const StepsOfRank& yours, const StepsOfRank& reference);

}  // namespace fsdp
