#include <testing/multi_rank.h>

namespace fsdp {
namespace {

MULTI_RANK_SUITE(LentInputs);

// Each rank frees its input at once, which poisons it, and only then tells the next to read.
MULTI_RANK_TEST(LentInputs, are_read_by_all_ranks_before_their_memory_is_freed) {
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
