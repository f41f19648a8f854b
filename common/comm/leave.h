#pragma once

#include <chrono>
#include <functional>

namespace fsdp {

// For a process that was just forked: from now on exit() destroys the static and thread-local
// objects that were made after this call, and runs handlers that were registered after it, but none
// of the process that forked. Then the process ends, with the status that `last(status)` returns.
void leave_by(const std::function<int(int status)>& last);

// Calls exit(). If that takes longer than `limit`, the process ends: by `status`, or by 1 if that
// is 0.
[[noreturn]] void leave(int status, std::chrono::milliseconds limit);

}  // namespace fsdp
