#include <base/write_all.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace fsdp {
namespace {

class IgnoredSignal {
 public:
  explicit IgnoredSignal(int signal) : signal_(signal) {
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    sigaction(signal, &ignore, &before_);
  }
  ~IgnoredSignal() { sigaction(signal_, &before_, nullptr); }
  IgnoredSignal(const IgnoredSignal&) = delete;
  IgnoredSignal& operator=(const IgnoredSignal&) = delete;

 private:
  int signal_;
  struct sigaction before_ {};
};

}  // namespace

int write_all(int file, std::string_view text) {
  const IgnoredSignal pipe(SIGPIPE), size(SIGXFSZ);
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written >= 0) text.remove_prefix(static_cast<size_t>(written));
    if (written < 0 && errno != EINTR) return errno;
  }
  return 0;
}

}  // namespace fsdp
