#include <gtest/gtest.h>
#include <memory/device_blocks.h>
#include <memory/live_bytes.h>

#include "in_a_process.h"

namespace fsdp {
namespace {

const void* address(int64_t number) {
  return reinterpret_cast<const void*>(number * 512);
}

TEST_IN_A_PROCESS(
    DeviceBlocks,
    a_gpu_block_counts_as_live_bytes_of_its_memory_class_and_can_move_to_another_class) {
  {
    const MemoryScope scope(MemoryClass::shards);
    device_blocks::allocated(address(1), 100);
  }
  device_blocks::allocated(address(2), 30);
  EXPECT_EQ(live_bytes::now()[MemoryClass::shards], 100);
  EXPECT_EQ(live_bytes::now()[MemoryClass::other], 30);
  device_blocks::reclassify(address(1), MemoryClass::gradients);
  EXPECT_EQ(live_bytes::now()[MemoryClass::shards], 0);
  EXPECT_EQ(live_bytes::now()[MemoryClass::gradients], 100);
  device_blocks::freed(address(1));
  EXPECT_EQ(live_bytes::now()[MemoryClass::gradients], 0);
  EXPECT_EQ(live_bytes::now().total, 30);
  EXPECT_EQ(live_bytes::peak_total(), 130) << "a move raises no peak";
}

TEST_IN_A_PROCESS(
    DeviceBlocks,
    a_gpu_block_of_negative_size_throws_and_freeing_or_moving_an_unknown_block_does_nothing) {
  EXPECT_THROW(device_blocks::allocated(address(1), -100), std::invalid_argument);
  device_blocks::freed(address(1));
  device_blocks::reclassify(address(2), MemoryClass::gradients);
  EXPECT_EQ(live_bytes::now().total, 0);
}

}  // namespace
}  // namespace fsdp
