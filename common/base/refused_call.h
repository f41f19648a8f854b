#pragma once

// A student's code computes: it needs no files, processes or sockets. cmake/isolate.sh replaces the
// calls of such functions in it, so that a line that never runs costs nothing, and one that runs
// ends its rank.
extern "C" {

// Replaces a function that a student's code may not call. Tells on_refused_call() and standard
// error that `function` was called, and aborts the process.
[[noreturn]] void fsdp_refused_call(const char* function);

// Replaces syscall(): std::latch and its like wait by SYS_futex. Any other call is refused.
long fsdp_futex_alone(long number, long a, long b, long c, long d, long e, long f);
}

namespace fsdp {

// `handler` is called in this process, and in those that it forks, with the name of a refused
// function.
void on_refused_call(void (*handler)(const char* function));

}  // namespace fsdp
