#pragma once

#include <nn/module.h>
#include <optim/shard_layout.h>

#include <vector>

namespace fsdp {

// The module of each unit of the layout of `root`, in the layout's order;
// nullptr for units that are marked as the root's, whose names are no paths. Throws
// std::logic_error, which names the unit, if the model has no such module, or one without hooks:
// then the layout is wrong.
std::vector<Module*> modules_of_units(const torch::nn::Module& root, const ShardLayout& layout);

// Sets in `layout`, of the model `root`, what depends on the modules' backward: unread_in_backward.
void note_what_backward_reads(const torch::nn::Module& root, ShardLayout& layout);

}  // namespace fsdp
