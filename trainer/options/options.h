#pragma once

#include <config/train_config.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace fsdp {

inline constexpr int kMaxTrainingWorld = 64;

// The way in which a program uses the options of `./fsdp train`.
struct TrainParsing {
  int max_world{kMaxTrainingWorld};
  // The program computes what a run would need and does not run it. Options about files that the
  // run would write, a checkpoint that it would resume and ranks that fail are not checked and have
  // no effect, except that --resume chooses the model if --model is not given.
  bool only_plans{};
  // If --seq is not given, a row of the batch has as many tokens as the model's context, unless
  // --data or --recipe decides how many tokens a row has.
  bool rows_fill_context{};
  std::vector<std::string> other_options;  // names of further options that the program takes
};

// Parses the command line of `./fsdp train`, fills in defaults, and checks the options as far as
// this is possible without the model.
// - `check_wrap` must throw std::invalid_argument if the value of --wrap is not valid (see
//   wrap_policy_of()).
// - Prints on stderr the options that have no effect, unless parsing.only_plans is set.
// - If the command line asks for help, prints it and exits with status 0. If --resume auto finds
//   that all steps are done, prints this and exits with status 0.
// Throws: UsageError (see run_program.h) for a mistake.
TrainConfig parse_train_options(const std::vector<std::string>& arguments,
                                const std::function<void(const std::string&)>& check_wrap,
                                const TrainParsing& parsing = {});

// Checks `text`, the options in a receipt (ReportsConfig::audited_options). An audit runs `./fsdp
// train` with these options, and another person may have written the receipt.
// - `no_files`: options may not name files or folders, except those in `replaced`, which are names,
//   without dashes, of options that the audit gives itself.
// Throws: std::invalid_argument, which names the option:
// - if no run writes this option into a receipt, for example because it names a file of results;
// - with `no_files`, if it names a file;
// - if `text` is not in the format of --config.
void check_audited_options(const std::string& text, bool no_files = false,
                           const std::set<std::string>& replaced = {});

}  // namespace fsdp
