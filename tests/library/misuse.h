#pragma once

#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

#include <functional>
#include <string>
#include <vector>

// Tests of mistakes that users make with a sharded model, and of the errors that they get.
namespace fsdp {

// A way to misuse a sharded BlockNet. `says` is a part of the error that `call` must cause. If
// `goes_on`, the model must train again after the error and a zero_grad().
struct Misuse {
  std::string says;
  std::function<void(ShardedNet&)> call;
  bool goes_on{true};
};

inline void expect_refused(int world_size, const Misuse& misuse,
                           const FullyShardedDataParallelOptions& options = {}) {
  run_ranks(world_size, [&](TestRank& rank) {
    ShardedNet sharded(rank, momentum, block_net(), options);
    EXPECT_CONTAINS(error_of([&] { misuse.call(sharded); }), misuse.says);
    if (!misuse.goes_on) return;
    sharded.model.zero_grad();
    sharded.step();
  });
}

// Defines a test of one misuse. `says` is a part of the error. The function that follows misuses
// the model.
#define MISUSE_TEST(suite, name, says, ...)                  \
  MULTI_RANK_TEST(suite, name) {                             \
    expect_refused(world_size(), Misuse{says, __VA_ARGS__}); \
  }
// Defines a test of a misuse after which the model cannot train any more.
#define LASTING_MISUSE_TEST(suite, name, says, ...)                             \
  MULTI_RANK_TEST(suite, name) {                                                \
    expect_refused(world_size(), Misuse{says, __VA_ARGS__, /*goes_on=*/false}); \
  }

inline void backward(ShardedNet& sharded) {
  loss_of(*sharded.net, sharded.rank).backward();
}
inline at::Tensor weight_of(ShardedNet& sharded) {
  return sharded.net->blocks[0]->linear->weight;
}

}  // namespace fsdp
