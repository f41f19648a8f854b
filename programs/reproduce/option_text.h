#pragma once

#include <string>
#include <vector>

namespace fsdp {

// The options of a run of train without --json and --log. Lines of tables with equal options share
// one run.
using TrainOptions = std::vector<std::string>;

std::string joined(const TrainOptions& options);  // with spaces between them
TrainOptions words(const std::string& text);      // splits the text at its spaces

// Returns the value after the option "--NAME"; "" if the option is not there.
std::string value_of(const TrainOptions& options, const std::string& option);

}  // namespace fsdp
