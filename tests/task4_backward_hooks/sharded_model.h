#pragma once

#include <backward_hooks.h>
#include <task3_forward_hooks/sharded_toy.h>
#include <testing/expected_shards.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

// What the tests of backward run: a sharded ToyModel, losses, and what one process makes of them.
namespace fsdp {

// Of a ToyModel of these layers, the parameters of block `frozen` need no gradient.
inline std::shared_ptr<ToyModel> toy_model(int layers, int frozen = -1) {
  auto model = std::make_shared<ToyModel>(layers);
  if (frozen >= 0) {
    for (auto& p : model->blocks[static_cast<size_t>(frozen)]->parameters())
      p.set_requires_grad(false);
  }
  return model;
}

// A ToyModel whose root and blocks are units, with the hooks of tasks 3 and 4.
struct Sharded : ShardedToy {
  explicit Sharded(TestRank& rank, int layers = 3, int frozen_block = -1)
      : Sharded(rank, toy_model(layers, frozen_block)) {}
  Sharded(TestRank& rank, std::shared_ptr<ToyModel> toy, bool reshard_after_forward = true)
      : ShardedToy(rank, std::move(toy), reshard_after_forward),
        hooks(std::make_shared<BackwardHooks>()) {
    for (size_t i = 0; i < units.size(); ++i)
      hooks->add(*modules[i], units[i]);
  }

  void observe_gradients(TestRank& rank) const {
    for (const auto& unit : units) {
      if (unit->sharded_gradient().defined()) {
        rank.observe(unit->unit(), unit->sharded_gradient(), places_of_shard(*unit));
      } else {
        rank.observe(unit->unit(), "no sharded gradient");
      }
    }
  }

  std::shared_ptr<BackwardHooks> hooks;
};

// A loss as one rank computes it, from tokens that differ between ranks.
using Loss = std::function<at::Tensor(ToyModel& model, int rank)>;

inline at::Tensor plain_loss(ToyModel& model, int rank) {
  return model(toy_tokens(rank)).square().sum();
}

// What one process makes of the ranks' losses, laid out as the units' shards: for each rank its own
// backward from zero, the sum in rank order, the division by W.
inline RankRun oracle(int world_size, const Loss& loss) {
  return run_oracle([&](TestRank& rank) {
    ToyModel model(3);
    std::map<std::string, at::Tensor> sums;
    for (int r = 0; r < world_size; ++r) {
      loss(model, r).backward();
      for (auto& item : model.named_parameters()) {
        at::Tensor& gradient = item.value().mutable_grad();
        if (!gradient.defined()) gradient = at::zeros_like(item.value());
        sums[item.key()] = r == 0 ? gradient.clone() : sums[item.key()] + gradient;
        gradient.reset();
      }
    }
    const auto observe_unit = [&](const std::string& unit, const std::vector<std::string>& names) {
      std::vector<at::Tensor> means;
      for (const auto& name : names)
        means.push_back(sums.at(name) / world_size);
      observe_expected_shards(rank, unit, means, world_size);
    };
    observe_unit("root", {"embedding", "head"});
    for (const std::string block : {"blocks0", "blocks1", "blocks2"}) {
      observe_unit(block, {block + ".weight", block + ".bias", block + ".spare"});
    }
  });
}

inline void expect_gradients_of_one_process(const RankRun& run, const Loss& loss) {
  const RankRun expected = oracle(run.world_size(), loss);
  for (const std::string unit : {"root", "blocks0", "blocks1", "blocks2"}) {
    for (int r = 0; r < run.world_size(); ++r) {
      expect_on_rank(run, r, unit, expected.at(0, unit + " " + std::to_string(r)));
    }
  }
}

// The calls of a pass in which every unit is used once.
inline constexpr const char* kBackward =
    "all_gather blocks2; reduce_scatter blocks2; all_gather blocks1; reduce_scatter blocks1; "
    "all_gather blocks0; reduce_scatter blocks0; reduce_scatter root; ";

// The units that were reduced, in order: "blocks2; root; ".
inline std::string reductions(const std::string& calls) {
  std::string result;
  size_t at = 0;
  while (at < calls.size()) {
    const size_t end = calls.find("; ", at);
    if (calls.compare(at, 14, "reduce_scatter") == 0)
      result += calls.substr(at + 15, end - at - 13);
    at = end + 2;
  }
  return result;
}

inline const Loss kBlockUnused = [](ToyModel& model, int rank) {
  model.order = {0, 2};
  return plain_loss(model, rank);
};

inline const Loss kOutputDropped = [](ToyModel& model, int rank) {
  (*model.blocks[1])(at::ones({1, 7}).requires_grad_(true));
  return plain_loss(model, rank);
};

}  // namespace fsdp
