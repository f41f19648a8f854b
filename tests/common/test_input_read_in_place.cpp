#include <testing/multi_rank.h>

namespace fsdp {
namespace {

MULTI_RANK_SUITE(InputReadInPlace);

// Each rank frees the input of its all-gather early. The memory must not be poisoned before all
// ranks have read it: rank 0 reads it in its wait before the barrier, the other ranks read it only
// after the barrier.
MULTI_RANK_TEST(InputReadInPlace, an_all_gather_input_freed_early_lives_until_all_ranks_read_it) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    Communicator& comm = *rank.communicator();
    const auto total = static_cast<int64_t>(rank.world_size()) * 8;
    const at::Tensor late = at::empty({total});
    Handle gather;
    {
      const at::Tensor input = comm.empty(8).fill_(static_cast<float>(rank.rank() + 1));
      gather = comm.all_gather_into(late, input, "unit");
      if (rank.rank() == 0) gather.wait();
    }
    comm.barrier("freed").wait();
    gather.wait();
    rank.observe("sum", late.sum().item<double>());
  });
  expect_on_all_ranks(run, "sum", 4.0 * world_size() * (world_size() + 1));
}

}  // namespace
}  // namespace fsdp
