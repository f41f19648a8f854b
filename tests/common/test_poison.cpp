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

}  // namespace
}  // namespace fsdp
