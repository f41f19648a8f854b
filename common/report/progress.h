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
  Progress(int64_t steps, bool terminal) : steps_(steps), terminal_(terminal) {}

  struct Step {
    int64_t done;    // steps, this one counted
    double seconds;  // the time now, since any moment
    double loss, tokens_per_s;
    int64_t live_bytes;
  };
  // What to print. A bar ends with a newline after the last step only.
  std::string after(const Step& step);

 private:
  std::string left(const Step& step) const;

  int64_t steps_;  // of the whole run
  bool terminal_;
  std::optional<Step> first_;  // the first one of this run
};

}  // namespace fsdp
