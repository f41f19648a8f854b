#include <comm/communicator.h>
#include <launch/launcher.h>
#include <launch/rank_context.h>
#include <malloc.h>
#include <memory/live_bytes.h>

#include <common/rank_failure.h>
#include <library/models.h>
#include <library/one_process.h>

namespace fsdp {
namespace {

// In 2,000 steps the memory may grow by less than 20,000 bytes. The ranks are launched without the
// test harness, because its communicators keep a log of all their calls.
TEST(LibraryMemory, the_memory_of_a_rank_does_not_grow_with_the_number_of_steps) {
  const auto result = launch(2, [](const RankContext& context) {
    const auto allocated = [] { return mallinfo2().uordblks + mallinfo2().hblkhd; };
    const auto net = block_net(1);
    FullyShardedDataParallel model(*net, Communicator::create(context));
    const auto optimizer = adamw(model.parameters());
    size_t before = 0;
    for (int step = 0; step < 3000; ++step) {
      if (step == 1000) before = allocated();
      (*net)(at::ones({1, 7})).sum().backward();
      model.clip_grad_norm_(1);
      optimizer->step();
      optimizer->zero_grad();
    }
    const size_t after = allocated();
    require(after < before + 20'000,
            std::to_string(after - before) + " bytes more after 2,000 steps");
    return 0;
  });
  EXPECT_EQ(failure(result), "");
}

}  // namespace
}  // namespace fsdp
