#include <comm/leave.h>
#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

extern "C" void __cxa_finalize(void* object);  // NOLINT: the C++ ABI's name

namespace fsdp {
namespace {

const std::function<int(int)>* last_of_all;  // never destroyed
int leaves_by = -1;                          // the status, once leave() is called

// exit() first destroys the thread-local objects, the latest first: this one when those are gone
// that were made after it. Before it reaches the inherited ones, the static objects and handlers
// have their turn, of which the last ends the process.
struct BeforeInheritedObjects {
  ~BeforeInheritedObjects() {
    if (leaves_by >= 0) __cxa_finalize(nullptr);
  }
};

}  // namespace

void leave_by(const std::function<int(int status)>& last) {
  last_of_all = new std::function<int(int)>(last);
  std::atexit([] { _exit((*last_of_all)(leaves_by)); });
  // For a program that calls exit() itself. __cxa_finalize() runs no handler of this kind.
  on_exit([](int status, void*) { _exit((*last_of_all)(status)); }, nullptr);
  [[maybe_unused]] static thread_local BeforeInheritedObjects barrier;
}

void leave(int status, std::chrono::milliseconds limit) {
  leaves_by = status;
  std::signal(SIGALRM, [](int) { _exit(leaves_by == 0 ? 1 : leaves_by); });
  const std::chrono::microseconds time(limit);
  itimerval timer{};
  timer.it_value = {time.count() / 1'000'000, time.count() % 1'000'000};
  setitimer(ITIMER_REAL, &timer, nullptr);
  std::exit(status);
}

}  // namespace fsdp
