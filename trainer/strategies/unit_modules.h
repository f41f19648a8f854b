#pragma once

#include <nn/module.h>
#include <optim/shard_layout.h>

#include <vector>

namespace fsdp {

// Returns the module of each unit in the order of `layout`, the layout of `root`. A unit that is
// marked as the root's has nullptr, because its name is not the path of a module. Throws
// std::logic_error, which names the unit, if the model has no module of the unit's name or the
// module has no hooks: then the layout does not fit the model.
std::vector<Module*> modules_of_units(const torch::nn::Module& root, const ShardLayout& layout);

// Sets no_unshard_in_backward in `layout`, the layout of the model `root`: the units whose module
// does not read its parameters in the backward pass.
void mark_units_without_unshard_in_backward(const torch::nn::Module& root, ShardLayout& layout);

}  // namespace fsdp
