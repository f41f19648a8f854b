#pragma once

#include <testing/multi_rank.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "planned_models.h"

namespace fsdp {

// A class whose name contains "Block", but does not end in it.
class Blocks : public HolderBlock {
  using HolderBlock::HolderBlock;
};

// Returns the classes of the modules that the policy chooses, sorted. The root is a block too, and
// one of the blocks inside has two names.
inline std::string chosen_by(const std::function<WrapPolicy()>& make_policy) {
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    const auto shared = std::make_shared<ToyBlock>(4, 1);
    const auto blocks = std::make_shared<Blocks>(std::make_shared<HolderBlock>(shared));
    const auto root = std::make_shared<HolderBlock>(std::make_shared<HolderBlock>(
        std::make_shared<Row>(std::vector<std::shared_ptr<Module>>{blocks, shared})));
    std::multiset<std::string> names;
    for (const Module* module : make_policy()(*root))
      names.insert(module == root.get() ? "the root" : module->name());
    std::string text;
    for (const std::string& name : names)
      text += name.substr(name.rfind(':') + 1) + "; ";
    rank.observe("chosen", text);
  });
  return run.at(0, "chosen").get<std::string>();
}

}  // namespace fsdp
