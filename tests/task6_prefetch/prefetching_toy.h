#pragma once

#include <prefetch.h>
#include <task4_backward_hooks/sharded_model.h>

#include <memory>
#include <string>
#include <utility>

namespace fsdp {

// A ToyModel whose root and blocks are units, with the hooks of tasks 3, 4 and 6.
struct PrefetchingToy : Sharded {
  PrefetchingToy(TestRank& rank, int limit, int layers = 4, bool reshard_after_forward = true)
      : Sharded(rank, std::make_shared<ToyModel>(layers), reshard_after_forward),
        prefetcher(std::make_shared<Prefetcher>(limit)) {
    hooks->on_end([p = prefetcher] { p->end_backward(); });
    for (size_t i = 1; i < units.size(); ++i)
      prefetcher->add(*modules[i], units[i]);
    prefetcher->add_root(*model);
  }

  // The calls of one forward and one backward, in the order of issue.
  std::pair<std::string, std::string> step(TestRank& rank) {
    rank.communicator()->take_log();
    live_bytes::enter(Phase::forward);
    const auto loss = plain_loss(*model, rank.rank());
    auto forward = take_calls(*rank.communicator());
    live_bytes::enter(Phase::backward);
    loss.backward();
    for (const auto& unit : units)
      unit->drop_gradient();
    return {forward, take_calls(*rank.communicator())};
  }

  std::shared_ptr<Prefetcher> prefetcher;
};

}  // namespace fsdp
