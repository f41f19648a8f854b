#include <ATen/native/Resize.h>
#include <memory/poison.h>
#include <testing/multi_rank.h>

namespace fsdp {
namespace {

// The ranks of a test start with poison switched on: unwritten and freed memory is filled with NaN.
TEST(Poison, unwritten_memory_is_filled_with_nan_while_poison_is_on) {
  run_ranks(1, [](TestRank& rank) {
    for (const at::Tensor& tensor :
         {at::empty({100}), at::empty({1 << 20}), rank.communicator()->empty(100)})
      EXPECT_TRUE(tensor.isnan().all().item<bool>());
  });
}

TEST(Poison, freed_storage_is_filled_with_nan_while_poison_is_on) {
  run_ranks(1, [](TestRank& rank) {
    // Blocks of this size stay mapped after they were freed, so the test can still read them.
    constexpr int64_t kNumel = 1 << 20;
    for (const at::Tensor& tensor :
         {at::ones({kNumel}), rank.communicator()->empty(kNumel).fill_(1)}) {
      const auto* data = tensor.const_data_ptr<float>();
      at::native::resize_bytes_nocuda(tensor.storage(), 0);
      EXPECT_TRUE(std::all_of(data, data + kNumel, [](float value) { return std::isnan(value); }));
    }
  });
}

TEST(Poison, freed_memory_keeps_its_values_and_padding_is_zero_while_poison_is_off) {
  run_ranks(1, [](TestRank&) {
    EXPECT_TRUE(std::isnan(poison::padding()));
    poison::enable(false);
    // Blocks of this size stay mapped after they were freed, so the test can still read them.
    constexpr int64_t kNumel = 1 << 20;
    const at::Tensor tensor = at::ones({kNumel});
    const auto* data = tensor.const_data_ptr<float>();
    at::native::resize_bytes_nocuda(tensor.storage(), 0);
    EXPECT_TRUE(std::all_of(data, data + kNumel, [](float value) { return value == 1; }));
    EXPECT_EQ(poison::padding(), 0);
  });
}

}  // namespace
}  // namespace fsdp
