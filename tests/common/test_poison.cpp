#include <ATen/native/Resize.h>
#include <memory/poison.h>
#include <testing/multi_rank.h>

namespace fsdp {
namespace {

// Ranks of tests are poisoned from the start.
TEST(Poison, fills_memory_that_nobody_has_written) {
  run_ranks(1, [](TestRank& rank) {
    for (const at::Tensor& tensor :
         {at::empty({100}), at::empty({1 << 20}), rank.communicator()->empty(100)})
      EXPECT_TRUE(tensor.isnan().all().item<bool>());
  });
}

TEST(Poison, fills_storage_that_is_freed) {
  run_ranks(1, [](TestRank& rank) {
    constexpr int64_t kNumel = 1 << 20;  // blocks as large as that are kept, so reading is no fault
    for (const at::Tensor& tensor :
         {at::ones({kNumel}), rank.communicator()->empty(kNumel).fill_(1)}) {
      const auto* data = tensor.const_data_ptr<float>();
      at::native::resize_bytes_nocuda(tensor.storage(), 0);
      EXPECT_TRUE(std::all_of(data, data + kNumel, [](float value) { return std::isnan(value); }));
    }
  });
}

TEST(Poison, writes_nothing_and_is_no_padding_while_it_is_off) {
  run_ranks(1, [](TestRank&) {
    EXPECT_TRUE(std::isnan(poison::padding()));
    poison::enable(false);
    constexpr int64_t kNumel = 1 << 20;  // blocks as large as that are kept, so reading is no fault
    const at::Tensor tensor = at::ones({kNumel});
    const auto* data = tensor.const_data_ptr<float>();
    at::native::resize_bytes_nocuda(tensor.storage(), 0);
    EXPECT_TRUE(std::all_of(data, data + kNumel, [](float value) { return value == 1; }));
    EXPECT_EQ(poison::padding(), 0);
  });
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
