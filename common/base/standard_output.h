#pragma once

#include <string>

namespace fsdp {

// Writes the output that this process has printed and that stdout still buffers. If no process
// reads standard output any more (a closed pipe), ends this process by SIGPIPE, even if it ignores
// SIGPIPE (gloo_group.cpp ignores it for its connections).
void flush_output();

// Calls flush_output(). Then returns why some of what this process has printed since its start
// could not be written: "standard output: No space left on device". Returns "" if all was written,
// or if stdout is closed, because then no output is expected.
std::string lost_output();

}  // namespace fsdp
