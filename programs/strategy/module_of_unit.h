#pragma once

#include <fully_shard.h>

namespace fsdp {

// The module of a unit of the layout that fully_shard() made of `root`. The unit is not marked as
// the root's, whose name is no path. Throws std::logic_error, which names the unit, if the model
// has no such module, or one without hooks: then the layout is wrong.
Module& module_of_unit(const torch::nn::Module& root, const ShardLayout::Unit& unit);

}  // namespace fsdp
