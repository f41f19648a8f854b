#pragma once

#include <stdexcept>
#include <string>

namespace fsdp {

struct NotStarted : std::logic_error {
  using std::logic_error::logic_error;
};

// Stands in the body of a function that is not written yet: todo("FlatParameter::unshard", "2.3").
// Stores both names for take_todo(), so that they outlive this process and any handler of the
// exception, and throws NotStarted.
[[noreturn]] void todo(const char* symbol, const char* problem);

// Returns the first todo() that was reached since the last take_todo(), in this process or in a
// process that it forked: "FlatParameter::unshard (problem 2.3)". Returns "" if none was reached.
// Must be called once before the first fork, because that call maps the memory that the processes
// share.
std::string take_todo();

}  // namespace fsdp
