#pragma once

#include <fully_shard.h>

namespace fsdp {

// Sets in `layout`, of the model `root`, what depends on the modules' backward: unread_in_backward.
void note_what_backward_reads(const torch::nn::Module& root, ShardLayout& layout);

}  // namespace fsdp
