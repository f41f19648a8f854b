#pragma once

#include <config/train_config.h>

#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// The command line of `./fsdp train`, with defaults filled in, and checked as far as that is
// possible without the model. `check_wrap` throws std::invalid_argument for a --wrap that the stack
// does not know. Options that the mode does not use are named on stderr. Throws UsageError (see
// command_line.h); prints the help and exits with 0 if asked for it.
inline constexpr int kMaxTrainingWorld = 64;
TrainConfig parse_train_options(const std::vector<std::string>& arguments,
                                const std::function<void(const std::string&)>& check_wrap,
                                int max_world = kMaxTrainingWorld);

}  // namespace fsdp
