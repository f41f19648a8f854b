#include <base/write_all.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

namespace fsdp {
namespace {

// While this object lives, the signals of a failed write (SIGPIPE, SIGXFSZ) are blocked in this
// thread; the destructor discards those that have arrived. The signals are not ignored instead,
// because that would change their action for the whole process, and other threads may write at the
// same time.
class HeldSignals {
 public:
  HeldSignals() {
    sigemptyset(&held_);
    sigset_t pending;
    sigpending(&pending);
    for (const int signal : {SIGPIPE, SIGXFSZ})
      if (sigismember(&pending, signal) == 0) sigaddset(&held_, signal);
    pthread_sigmask(SIG_BLOCK, &held_, &before_);
  }
  ~HeldSignals() {
    const timespec now{};
    while (sigtimedwait(&held_, nullptr, &now) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  sigset_t held_{}, before_{};
};

int write_bytes(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written >= 0) text.remove_prefix(static_cast<size_t>(written));
    if (written < 0 && errno != EINTR) return errno;
  }
  return 0;
}

}  // namespace

int write_all(int file, std::string_view text) {
  const HeldSignals held;
  return write_bytes(file, text);
}

}  // namespace fsdp
