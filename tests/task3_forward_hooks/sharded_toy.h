#pragma once

#include <forward_hooks.h>
#include <memory/live_bytes.h>
#include <testing/call_text.h>
#include <testing/multi_rank.h>
#include <testing/toy_model.h>

#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// A ToyModel whose root and blocks are units with forward hooks. The tests of later tasks add
// theirs.
struct ShardedToy {
  ShardedToy(TestRank& rank, std::shared_ptr<ToyModel> toy, bool reshard_after_forward = true)
      : model(std::move(toy)) {
    for (auto& [module, name, parameters] : toy_units(*model)) {
      modules.push_back(module);
      units.push_back(
          std::make_shared<FlatParameter>(name, std::move(parameters), rank.communicator()));
      register_forward_hooks(*module, units.back(), reshard_after_forward && name != "root");
    }
  }

  // The units that hold storage: "root blocks1 ".
  std::string gathered() const {
    std::string names;
    for (const auto& unit : units)
      names += unit->state() == UnitState::sharded ? "" : unit->unit() + " ";
    return names;
  }

  std::shared_ptr<ToyModel> model;
  std::vector<Module*> modules;                       // of the units, in their order
  std::vector<std::shared_ptr<FlatParameter>> units;  // the root first
};

}  // namespace fsdp
