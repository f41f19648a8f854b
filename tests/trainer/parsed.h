#pragma once

#include <command_line/run_program.h>
#include <options/options.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace fsdp {

using Arguments = std::vector<std::string>;

// Returns the config that `./fsdp train` parses from these arguments. Every value of --wrap is
// accepted.
inline TrainConfig parsed(const Arguments& arguments) {
  return parse_train_options(arguments, [](const auto&) {});
}

// Parses like parsed(), but adds `--recipe published` (random tokens) if --recipe is missing, and
// `--batch 24` if --batch is missing. A batch of 24 rows can be divided by 1, 2, 3, 4 and 8 ranks.
inline TrainConfig parse(Arguments arguments) {
  for (const Arguments& option : {Arguments{"--recipe", "published"}, Arguments{"--batch", "24"}})
    if (std::ranges::find(arguments, option[0]) == arguments.end())
      arguments.insert(arguments.end(), option.begin(), option.end());
  return parsed(arguments);
}

// Returns the text of the UsageError that the function `parsing` throws for these arguments. If it
// throws nothing, returns "accepted".
inline std::string refusal(const Arguments& arguments,
                           const std::function<TrainConfig(Arguments)>& parsing = parse) {
  try {
    parsing(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}
inline std::string refused(const Arguments& arguments) {
  return refusal(arguments, parsed);
}

}  // namespace fsdp
