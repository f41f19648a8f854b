#pragma once

#include <stdexcept>
#include <string>

namespace fsdp {

struct NotStarted : std::logic_error {
  using std::logic_error::logic_error;
};

// The body of a function that is still to be written: todo("FlatParameter::unshard", "2.3").
// Throws NotStarted, and leaves a note that outlives the process and any handler of the exception.
[[noreturn]] void todo(const char* symbol, const char* problem);

// The first todo() that this process, or one it forked since the last call of this function, has
// reached since then: "FlatParameter::unshard (problem 2.3)"; empty if there was none.
std::string take_todo();

}  // namespace fsdp
