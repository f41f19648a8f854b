#pragma once

#include <fully_shard.h>

#include <optional>

namespace fsdp {

// The unit of `layout` with whose end of backward the root's parameters are needed no longer: then
// all modules have come back whose own backward reads one of them. That of an Embedding reads none.
// Supposes that modules run in the order of their registration. None if a reader comes before all
// units, or if there is no root or no unit besides.
std::optional<size_t> root_until(const torch::nn::Module& root, const ShardLayout& layout);

// Frees the root's parameters there, and not only at the end of the pass, unless a graph still
// holds one. Registers hooks that run after those of fully_shard(). Calls no collective.
void reshard_root_early(Module& root, const FullySharded& sharded, size_t unit);

}  // namespace fsdp
