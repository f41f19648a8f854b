#pragma once

#include <fully_shard.h>
#include <memory/live_bytes.h>
#include <nn/models.h>
#include <sharded_optimizer.h>

#include "handout.h"

namespace fsdp {

// Shards the handouts' model `small` over `world_size` ranks. Runs forward and backward twice, each
// time with one row of four tokens, then a step of the optimizer and an export. Returns what rank 0
// observes: the bytes that it holds and receives, the number of elements, and the number of
// collectives of the export. `limit`: see Prefetcher.
inline Values costs_of_small(int world_size, bool reshard_after_forward, int limit) {
  return observed_on(world_size, [=](TestRank& rank) {
    const auto comm = rank.communicator();
    const auto model = make_model("small");
    FullyShardOptions options;
    options.reshard_after_forward = reshard_after_forward;
    options.limit = limit;
    const auto sharded = fully_shard(*model, comm, options);
    const auto forward = [&] {
      comm->take_log();
      live_bytes::enter(Phase::forward);
      return (*model)(at::arange(4).view({1, 4})).square().mean();
    };
    const auto gathered = [] { return live_bytes::peak()[MemoryClass::gathered]; };
    rank.observe("elements", sharded->layout().numel());
    rank.observe("shards", live_bytes::now()[MemoryClass::shards]);

    const at::Tensor loss = forward();
    rank.observe("gathered in forward", gathered());
    loss.backward();
    forward().backward();
    rank.observe("gathered", gathered());
    std::map<std::string, int64_t> received;
    for (const Call& call : comm->take_log()) {
      received[to_string(call.operation)] += call.bytes;
      received["received"] += call.bytes;
    }
    for (const auto& [name, bytes] : received)
      rank.observe(name, bytes);

    const auto optimizer = make_sharded_optimizer(sharded->units(), {{"", {}}}, comm);
    optimizer->step();
    rank.observe("state", live_bytes::now()[MemoryClass::optimizer_state]);
    comm->take_log();
    live_bytes::enter(Phase::forward);
    sharded->full_parameters([](const auto&, const at::Tensor&) {});
    rank.observe("calls of an export", comm->take_log().size());
    rank.observe("gathered by an export", gathered());
    comm->all_reduce(at::ones({sharded->layout().numel()}), "all").wait();
    rank.observe("DDP", comm->take_log().at(0).bytes);
  });
}

}  // namespace fsdp
