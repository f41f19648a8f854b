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

TEST(MemoryBar, the_memory_bar_has_one_letter_for_each_class_of_bytes) {
  const std::string bar = memory_bar(bytes_of(20'000'000'000, 10'000'000'000), 80'000'000'000);
  EXPECT_EQ(bar, "  [" + std::string(20, 's') + std::string(10, 'a') + std::string(50, '.') +
                     "] 80.000 GB\n   s shards, a activations, . free, 1.000 GB each\n");
}

TEST(MemoryBar, the_memory_bar_marks_the_end_of_the_memory_if_the_bytes_exceed_it) {
  const std::string bar = memory_bar(bytes_of(60'000'000, 20'000'000), 40'000'000);
  EXPECT_EQ(bar, "  [" + std::string(40, 's') + "|" + std::string(20, 's') + std::string(20, 'a') +
                     "] 80.000 MB\n   s shards, a activations, | the end of 40.000 MB, 1.000 MB "
                     "each\n");
}

TEST(MemoryBar, if_no_memory_size_is_given_the_bytes_fill_the_whole_memory_bar) {
  const std::string bar = memory_bar(bytes_of(1, 3), {});
  EXPECT_EQ(std::ranges::count(bar.substr(0, 83), 's'), 20);
  EXPECT_EQ(std::ranges::count(bar.substr(0, 83), 'a'), 60);
}

}  // namespace
}  // namespace fsdp
