#pragma once

#include <config/train_config.h>

#include <functional>
#include <string>
#include <vector>

namespace fsdp {

inline constexpr int kMaxTrainingWorld = 64;

// The way in which a program uses the options of `./fsdp train`.
struct TrainParsing {
  int max_world{kMaxTrainingWorld};
  // The program computes what a run would need and does not run it. Options about files that the
  // run would write, a checkpoint that it would resume and ranks that fail have no effect and are
  // not checked.
  bool only_plans{};
  std::vector<std::string> other_options;  // names of further options of the program
};

// Parses the command line of `./fsdp train`, fills in defaults, and checks the options as far as
// this is possible without the model.
// - `check_wrap` throws std::invalid_argument for a --wrap that the stack does not know.
// - Prints on stderr the options that have no effect.
// - If the command line asks for help, prints it and exits with status 0.
// Throws: UsageError (see run_program.h) for a mistake.
TrainConfig parse_train_options(const std::vector<std::string>& arguments,
                                const std::function<void(const std::string&)>& check_wrap,
                                const TrainParsing& parsing = {});

}  // namespace fsdp
