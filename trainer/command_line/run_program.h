#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace fsdp {

// A mistake in the command line. what() is the text that run_program() prints after the program's
// name.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Runs `body` and returns the exit status for main():
// - what `body` returns; 1 in place of 0 if the output of the program could not be written;
// - 2 after a UsageError;
// - 1 after another std::exception.
// Prints an error on stderr, after the program's name. If `body` throws Interrupted (see
// run_child()), ends this process with the same signal.
int run_program(const std::string& name, const std::function<int()>& body);

// Call it for a file that `option` names, before the file is written. `reason` says why the file
// `path` can't be written; "": it can. Throws UsageError "--json FILE: Permission denied" if
// `reason` is not empty, and UsageError if `path` is "-".
void check_output(const std::string& option, const std::string& path, const std::string& reason);

// Call it for a file that `option` names, if the program gives `words`, options of ./fsdp train, to
// another program or to parse_train_options(). Throws UsageError if one of the words names the same
// file, or a Hugging Face folder (hf:FOLDER) in which the file lies, because a file that is read
// would then be replaced.
void check_not_read(const std::string& option, const std::string& path,
                    const std::vector<std::string>& words);

}  // namespace fsdp
