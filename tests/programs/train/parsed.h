#pragma once

#include <train/options.h>

#include <string>
#include <vector>

namespace fsdp {

// What `./fsdp train` makes of these arguments, in a stack that takes every --wrap.
inline TrainConfig parsed(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "train");
  std::vector<char*> argv;
  for (std::string& argument : arguments)
    argv.push_back(argument.data());
  return parse_train_options(static_cast<int>(argv.size()), argv.data(), [](const auto&) {});
}

}  // namespace fsdp
