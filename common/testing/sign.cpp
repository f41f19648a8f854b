#include <poll.h>
#include <testing/sign.h>
#include <unistd.h>

#include <system_error>

namespace fsdp {
namespace {

void check(bool done, const char* what) {
  if (!done) throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

Sign::Sign() {
  check(pipe(ends_) == 0, "Sign: pipe");
}

Sign::~Sign() {
  close(ends_[0]);
  close(ends_[1]);
}

void Sign::give() const {
  check(write(ends_[1], "x", 1) == 1, "Sign: write");
}

void Sign::wait() const {
  pollfd given{ends_[0], POLLIN, 0};
  poll(&given, 1, 300);
}

}  // namespace fsdp
