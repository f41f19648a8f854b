#pragma once

#include <string>
#include <vector>

namespace fsdp {

// The options of a training run of train, without --json and --log. If lines of tables have equal
// options, train runs only once for them.
using TrainOptions = std::vector<std::string>;

std::string joined(const TrainOptions& options);  // the options as text, with spaces between them
TrainOptions words(const std::string& text);      // splits a text at its spaces

// Returns the word after `option`, such as "--world"; "" if the options do not have it.
std::string value_of(const TrainOptions& options, const std::string& option);

}  // namespace fsdp
