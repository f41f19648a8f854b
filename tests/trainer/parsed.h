#pragma once

#include <command_line/command_line.h>
#include <options/options.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace fsdp {

using Arguments = std::vector<std::string>;

// What `./fsdp train` makes of these arguments, in a stack that takes every --wrap.
inline TrainConfig parsed(const Arguments& arguments) {
  return parse_train_options(arguments, [](const auto&) {});
}

// The same with other defaults: 24 rows, which 1, 2, 3, 4 and 8 ranks divide, of random tokens.
inline TrainConfig parse(Arguments arguments) {
  for (const Arguments& option : {Arguments{"--recipe", "published"}, Arguments{"--batch", "24"}})
    if (std::ranges::find(arguments, option[0]) == arguments.end())
      arguments.insert(arguments.end(), option.begin(), option.end());
  return parsed(arguments);
}

// How they are refused.
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
