#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// From now on SIGINT and SIGTERM go to the child that runs, and are remembered.
void pass_on_signals();
int ending_signal();  // that came; 0: none
[[noreturn]] void end_by(int signal);

// Runs a program with its output in the file `log`, and waits for it. Calls `watch` with its
// process number each second. Returns whether it ended with 0; a program that can't be run says why
// in `log`. If this process dies, the program ends. Throws std::runtime_error if `log` can't be
// opened or there is no process left.
bool run_child(const std::filesystem::path& program, std::vector<std::string> arguments,
               const std::filesystem::path& log, const std::function<void(int)>& watch = nullptr);

// The last line that is not empty; "" if there is none.
std::string last_line(const std::string& text);

}  // namespace fsdp
