#pragma once

#include <fully_shard.h>
#include <memory/live_bytes.h>
#include <nn/models.h>
#include <testing/multi_rank.h>

#include <map>
#include <string>

namespace fsdp {

// The model `small` of the handouts, sharded, with a row of four tokens. `limit`: see Prefetcher.
struct SmallModel {
  SmallModel(TestRank& rank, bool reshard_after_forward, int limit)
      : comm(rank.communicator()), model(make_model("small")) {
    FullyShardOptions options;
    options.reshard_after_forward = reshard_after_forward;
    options.limit = limit;
    sharded = fully_shard(*model, comm, options);
  }

  at::Tensor loss() const { return (*model)(at::arange(4).view({1, 4})).square().mean(); }

  // Runs forward and backward. Returns the bytes that this rank received, by operation.
  std::map<std::string, int64_t> step() const {
    comm->take_log();
    loss().backward();
    std::map<std::string, int64_t> bytes;
    for (const Call& call : comm->take_log())
      bytes[to_string(call.operation)] += call.bytes;
    return bytes;
  }

  std::shared_ptr<Communicator> comm;
  std::shared_ptr<Module> model;
  std::shared_ptr<FullySharded> sharded;
};

}  // namespace fsdp
