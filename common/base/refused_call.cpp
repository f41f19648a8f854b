#include <base/refused_call.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace fsdp {
namespace {
void (*refused_call_handler)(const char*) = nullptr;
}

void on_refused_call(void (*handler)(const char*)) {
  refused_call_handler = handler;
}

}  // namespace fsdp

void fsdp_refused_call(const char* function) {
  if (fsdp::refused_call_handler != nullptr) fsdp::refused_call_handler(function);
  std::fprintf(stderr, "fsdp: a task's code called %s, which it may not call: remove it\n",
               function);
  std::abort();
}

long fsdp_futex_alone(long number, long a, long b, long c, long d, long e, long f) {
  if (number != SYS_futex) fsdp_refused_call("syscall");
  return syscall(number, a, b, c, d, e, f);
}
