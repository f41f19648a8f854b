#pragma once

#include <fully_shard.h>

#include <optional>

namespace fsdp {

// Sets in `layout`, of the model `root`, what depends on the modules' backward: unread_in_backward
// and root_until.
void note_what_backward_reads(const torch::nn::Module& root, ShardLayout& layout);

// The unit of `layout` with whose end of backward the root's parameters are needed no longer: then
// all modules have come back whose own backward reads one of them (reads_parameters_in_backward()).
// Supposes that modules run in the order of their registration. None if a reader comes before all
// units, or if there is no root or no unit besides.
std::optional<size_t> root_until(const torch::nn::Module& root, const ShardLayout& layout);

// Frees the root's parameters there, and not only at the end of the pass, unless a graph still
// holds one. Registers hooks that run after those of fully_shard(). Calls no collective.
void reshard_root_early(Module& root, const FullySharded& sharded, size_t unit);

}  // namespace fsdp
