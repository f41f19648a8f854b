#include <plan/search_progress.h>
#include <unistd.h>

#include <cstdio>

namespace fsdp {

using std::chrono::milliseconds;
using std::chrono::seconds;

SearchProgress::SearchProgress()
    : terminal_(isatty(STDERR_FILENO) == 1), next_(Clock::now() + seconds(2)) {}

void SearchProgress::planned() {
  ++plans_;
  if (Clock::now() < next_ || (printed_ && !terminal_)) return;
  std::fprintf(stderr, terminal_ ? "\r\033[Ksearching: %zu plans" : "searching: %zu plans so far\n",
               plans_);
  printed_ = true;
  next_ = Clock::now() + milliseconds(500);
}

void SearchProgress::end() {
  if (printed_ && terminal_) std::fputs("\r\033[K", stderr);
}

}  // namespace fsdp
