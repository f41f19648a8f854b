#pragma once

#include <nn/module.h>
#include <optim/shard_layout.h>

#include <vector>

namespace fsdp {

// Returns the module of each unit of the layout of `root`, in the layout's order. For a unit that
// is marked as the root's, whose name is not a path, the module is nullptr. Throws
// std::logic_error, which names the unit, if the model has no such module or the module has no
// hooks: then the layout is wrong.
std::vector<Module*> modules_of_units(const torch::nn::Module& root, const ShardLayout& layout);

// Sets no_unshard_in_backward in `layout`, the layout of the model `root`: the units whose module
// does not read its parameters in the backward pass.
void mark_units_without_unshard_in_backward(const torch::nn::Module& root, ShardLayout& layout);

}  // namespace fsdp
