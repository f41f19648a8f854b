#pragma once

#include <nn/module.h>
#include <optim/shard_layout.h>

#include <vector>

namespace fsdp {

// Returns the module of each unit, in the order of `layout`, which is the layout of `root`. For a
// unit that is marked as the root's it returns nullptr, because the unit's name is not the path of
// a module. Throws std::logic_error, which names the unit, if no fsdp::Module of the model has the
// unit's name, because then the layout does not fit the model.
std::vector<Module*> modules_of_units(const torch::nn::Module& root, const ShardLayout& layout);

// Adds the index of each unit whose module does not read its parameters in the backward pass to
// layout.no_unshard_in_backward. `layout` is the layout of the model `root`.
void mark_units_without_unshard_in_backward(const torch::nn::Module& root, ShardLayout& layout);

}  // namespace fsdp
