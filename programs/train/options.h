#pragma once

#include <config/train_config.h>

#include <functional>
#include <stdexcept>
#include <string>

namespace fsdp {

// A command line that can't be carried out; what() is the line to print.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The command line of `./fsdp train`, defaults filled in and everything checked that can be without
// building the model. `check_wrap` throws std::invalid_argument for a --wrap that the stack does
// not know. Throws UsageError; prints the help and exits with 0 when asked for it.
TrainConfig parse_train_options(int argc, char** argv,
                                const std::function<void(const std::string&)>& check_wrap);

}  // namespace fsdp
