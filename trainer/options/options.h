#pragma once

#include <config/train_config.h>

#include <functional>
#include <string>
#include <vector>

namespace fsdp {

inline constexpr int kMaxTrainingWorld = 64;

// Which program reads the command line of `./fsdp train`.
struct TrainParsing {
  int max_world{kMaxTrainingWorld};
  // The run is not made, only computed: what options say about files that it would write, about the
  // checkpoint that it would resume and about ranks that fail has no effect, and is not checked.
  bool only_plans{};
  std::vector<std::string> other_options;  // names that the program takes besides
};

// The command line of `./fsdp train`, with defaults filled in, and checked as far as that is
// possible without the model. `check_wrap` throws std::invalid_argument for a --wrap that the stack
// does not know. Options that the mode does not use are named on stderr. Throws UsageError (see
// command_line.h); prints the help and exits with 0 if asked for it.
TrainConfig parse_train_options(const std::vector<std::string>& arguments,
                                const std::function<void(const std::string&)>& check_wrap,
                                const TrainParsing& parsing = {});

}  // namespace fsdp
