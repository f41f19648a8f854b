#pragma once

#include <string>

namespace fsdp {

// Writes what this process has printed and stdout still holds. If its reader has gone, ends the
// process by SIGPIPE, even if that signal is ignored for the sake of other files.
void flush_output();

// The same. Returns why some of what this process has ever printed could not be written ("standard
// output: No space left on device"); empty if all was, or if stdout is closed, because then nobody
// wants it.
std::string lost_output();

}  // namespace fsdp
