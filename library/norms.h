#pragma once

#include <torch/ordered_dict.h>

#include <string>

namespace fsdp {

// The norm of each parameter, or of each parameter's gradient. The key is the name of the
// parameter; if it has several names, the first one.
using Norms = torch::OrderedDict<std::string, double>;

}  // namespace fsdp
