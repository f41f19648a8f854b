#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fsdp {

// "42 s left", "3 min left", "1 h 5 min left"
std::string time_left(double seconds);

// What a run shows after each step: on a terminal a bar that is drawn over the one before, with the
// time left as soon as two seconds have passed; else a line.
class Progress {
 public:
  explicit Progress(int64_t steps) : steps_(steps) {}

  struct Step {
    int64_t done;    // steps, this one counted
    double seconds;  // the time now, since any moment
    double loss, tokens_per_s;
    int64_t live_bytes;
  };
  // What to print on a terminal of so many columns, or, if that is 0, into a file. On a terminal it
  // fits into one line: what has no room is left out, first the bar, then the end. It ends with a
  // newline after the last step only.
  std::string after(const Step& step, int columns);

 private:
  std::string left(const Step& step) const;

  int64_t steps_;              // of the whole run
  std::optional<Step> first_;  // the first one of this run
};

}  // namespace fsdp
