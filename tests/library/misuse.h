#pragma once

#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

#include <functional>
#include <string>
#include <vector>

// What users do wrong with a sharded model, and what the errors say.
namespace fsdp {

// A misuse of a sharded BlockNet, and a part of its error. Afterwards the model goes on, but where
// it was changed for good.
struct Misuse {
  std::string says;
  std::function<void(ShardedNet&)> call;
  bool goes_on{true};
};

// Several misuses may have one error: a failure names the place in the list.
inline void expect_refused(int world_size, const std::vector<Misuse>& misuses,
                           const FullyShardedDataParallelOptions& options = {}) {
  run_ranks(world_size, [&](TestRank& rank) {
    for (size_t i = 0; i < misuses.size(); ++i) {
      const Misuse& misuse = misuses[i];
      SCOPED_TRACE("misuse " + std::to_string(i + 1) + " of " + std::to_string(misuses.size()) +
                   " in the list of this test: " + misuse.says);
      ShardedNet sharded(rank, momentum, block_net(), options);
      EXPECT_CONTAINS(error_of([&] { misuse.call(sharded); }), misuse.says);
      if (!misuse.goes_on) continue;
      sharded.model.zero_grad();
      sharded.step();
    }
  });
}

inline void backward(ShardedNet& sharded) {
  loss_of(*sharded.net, sharded.rank).backward();
}
inline at::Tensor weight_of(ShardedNet& sharded) {
  return sharded.net->blocks[0]->linear->weight;
}

}  // namespace fsdp
