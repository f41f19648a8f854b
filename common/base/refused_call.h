#pragma once

// A student's code needs no files, processes or sockets. In that code, cmake/isolate.sh replaces
// the calls of functions for them by calls of fsdp_refused_call() or fsdp_futex_alone(). A refused
// call in code that never runs has no effect; when one runs, it ends its rank.
extern "C" {

// Replaces a function that a student's code must not call. Calls the handler of on_refused_call(),
// prints to standard error that `function` was called, and aborts the process.
[[noreturn]] void fsdp_refused_call(const char* function);

// Replaces syscall(). Allows SYS_futex, with which std::latch and similar classes wait; for any
// other number, ends as fsdp_refused_call("syscall") does.
long fsdp_futex_alone(long number, long a, long b, long c, long d, long e, long f);
}

namespace fsdp {

// Sets the handler that fsdp_refused_call() calls, with the name of the function that a student's
// code must not call. The handler applies to this process and to processes that it forks later.
void on_refused_call(void (*handler)(const char* function));

}  // namespace fsdp
