#include <ATen/native/Resize.h>
#include <memory/poison.h>
#include <testing/multi_rank.h>

namespace fsdp {
namespace {

// Ranks of tests are poisoned from the start.
RankRun in_a_rank(const RankBody& body) {
  return run_ranks(1, body);
}

bool all_nan(const float* data, int64_t numel) {
  return std::all_of(data, data + numel, [](float value) { return std::isnan(value); });
}

TEST(Poison, fills_memory_that_nobody_has_written) {
  const RankRun run = in_a_rank([](TestRank& rank) {
    rank.observe("heap", at::empty({100}).isnan().all().item<bool>());
    rank.observe("heap, large", at::empty({1 << 20}).isnan().all().item<bool>());
    rank.observe("arena", rank.communicator()->empty(100).isnan().all().item<bool>());
  });
  for (const std::string where : {"heap", "heap, large", "arena"})
    expect_on_all_ranks(run, where, true);
}

TEST(Poison, fills_storage_that_is_freed) {
  const RankRun run = in_a_rank([](TestRank& rank) {
    constexpr int64_t kNumel = 1 << 20;  // blocks as large as that are kept, so reading is no fault
    const at::Tensor heap = at::ones({kNumel});
    const at::Tensor arena = rank.communicator()->empty(kNumel).fill_(1);
    const auto* heap_data = heap.const_data_ptr<float>();
    const auto* arena_data = arena.const_data_ptr<float>();
    at::native::resize_bytes_nocuda(heap.storage(), 0);
    at::native::resize_bytes_nocuda(arena.storage(), 0);
    rank.observe("heap", all_nan(heap_data, kNumel));
    rank.observe("arena", all_nan(arena_data, kNumel));
  });
  expect_on_all_ranks(run, "heap", true);
  expect_on_all_ranks(run, "arena", true);
}

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
