#include <plan/memory_bar.h>

#include <gtest/gtest.h>

#include <algorithm>

namespace fsdp {
namespace {

LiveBytes bytes_of(int64_t shards, int64_t activations) {
  LiveBytes bytes;
  bytes.by_class[static_cast<size_t>(MemoryClass::shards)] = shards;
  bytes.by_class[static_cast<size_t>(MemoryClass::other)] = activations;
  bytes.total = shards + activations;
  return bytes;
}

TEST(MemoryBar, a_bar_has_a_letter_for_each_part_of_the_memory) {
  const std::string bar = memory_bar(bytes_of(20'000'000'000, 10'000'000'000), 80'000'000'000);
  EXPECT_EQ(bar, "  [" + std::string(20, 's') + std::string(10, 'a') + std::string(50, '.') +
                     "] 80.000 GB\n   s shards, a activations, . free, 1.000 GB each\n");
}

TEST(MemoryBar, a_bar_shows_where_the_memory_ends_if_the_bytes_exceed_it) {
  const std::string bar = memory_bar(bytes_of(60'000'000, 20'000'000), 40'000'000);
  EXPECT_EQ(bar, "  [" + std::string(40, 's') + "|" + std::string(20, 's') + std::string(20, 'a') +
                     "] 80.000 MB\n   s shards, a activations, | the end of 40.000 MB, 1.000 MB "
                     "each\n");
}

TEST(MemoryBar, a_bar_without_a_memory_is_full) {
  const std::string bar = memory_bar(bytes_of(1, 3), {});
  EXPECT_EQ(std::ranges::count(bar.substr(0, 83), 's'), 20);
  EXPECT_EQ(std::ranges::count(bar.substr(0, 83), 'a'), 60);
}

}  // namespace
}  // namespace fsdp
