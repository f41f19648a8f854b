#pragma once

#include <torch/ordered_dict.h>

#include <string>

namespace fsdp {

// The norm of each parameter, or of its gradient, by the parameter's first name.
using Norms = torch::OrderedDict<std::string, double>;

}  // namespace fsdp
