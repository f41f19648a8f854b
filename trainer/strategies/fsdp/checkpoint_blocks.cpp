#include <checkpoint_activations.h>
#include <strategies/fsdp/checkpoint_blocks.h>

#include <set>

namespace fsdp {

void checkpoint_blocks(Module& root, int every) {
  std::set<const Module*> blocks;  // a module can have several names
  for (const auto& module : root.modules(/*include_self=*/false)) {
    auto* block = dynamic_cast<Module*>(module.get());
    if (block == nullptr || !block->name().ends_with("Block")) continue;
    const bool first = blocks.insert(block).second;
    if (first && static_cast<int>(blocks.size()) % every == 0) checkpoint_activations(*block);
  }
}

}  // namespace fsdp
