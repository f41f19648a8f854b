#pragma once

#include <forward_hooks.h>
#include <memory/live_bytes.h>
#include <testing/call_text.h>
#include <testing/multi_rank.h>
#include <testing/retained_memory.h>
#include <testing/toy_model.h>

#include <memory>
#include <string>
#include <vector>

namespace fsdp {

// Returns a ToyModel whose parameters have half the values of ToyModel(layers). So a test notices
// if one of the two models computes with the shards of the other.
inline std::shared_ptr<ToyModel> other_toy(int layers) {
  at::NoGradGuard no_grad;
  auto model = std::make_shared<ToyModel>(layers);
  for (auto& parameter : model->parameters())
    parameter.mul_(0.5);
  return model;
}

// Returns a text with the names of the units that are unsharded or being gathered: "root blocks1 ".
inline std::string gathered(const std::vector<std::shared_ptr<FlatParameter>>& units) {
  std::string names;
  for (const auto& unit : units)
    names += unit->state() == UnitState::sharded ? "" : unit->unit() + " ";
  return names;
}

// A ToyModel whose root and blocks are units with forward hooks. Tests of later tasks add hooks.
struct ShardedToy {
  explicit ShardedToy(TestRank& rank, int layers = 2, bool reshard_after_forward = true)
      : ShardedToy(rank, std::make_shared<ToyModel>(layers), reshard_after_forward) {}

  ShardedToy(TestRank& rank, std::shared_ptr<ToyModel> toy, bool reshard_after_forward = true)
      : model(std::move(toy)) {
    for (auto& [module, name, parameters] : toy_units(*model)) {
      modules.push_back(module);
      units.push_back(make_flat_parameter(name, std::move(parameters), rank.communicator()));
      register_forward_hooks(*module, units.back(), reshard_after_forward && name != "root");
    }
  }

  std::string gathered() const { return fsdp::gathered(units); }

  std::shared_ptr<ToyModel> model;
  std::vector<Module*> modules;                       // modules[i] is the module of units[i]
  std::vector<std::shared_ptr<FlatParameter>> units;  // units[0] is the unit of the root
};

// Returns the output that one process computes with a ToyModel of two layers, or with other_toy(2)
// if `other` is true.
inline nlohmann::json eager_output(bool other = false) {
  const RankRun run = run_oracle([&](TestRank& rank) {
    const auto model = other ? other_toy(2) : std::make_shared<ToyModel>(2);
    rank.observe("output", (*model)(toy_tokens(0)).detach());
  });
  return run.at(0, "output");
}

}  // namespace fsdp
