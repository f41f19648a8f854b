#include <gtest/gtest.h>
#include <memory/address_ranges.h>

#include <string>
#include <vector>

namespace fsdp {
namespace {

using From = AddressRanges::From;

char memory[1000];

// Returns the ranges as offsets into `memory`: "10-30 50-90".
std::string text(const AddressRanges& ranges) {
  std::string text;
  for (const auto& [begin, bytes] : ranges.all()) {
    const auto first = begin - memory;
    text += (text.empty() ? "" : " ") + std::to_string(first) + "-" +
            std::to_string(first + static_cast<std::ptrdiff_t>(bytes));
  }
  return text;
}

AddressRanges ranges_of(const std::vector<std::pair<int, int>>& ends) {
  AddressRanges ranges;
  for (const auto& [begin, end] : ends)
    ranges.insert(memory + begin, static_cast<size_t>(end - begin));
  return ranges;
}

TEST(AddressRanges, adjacent_address_ranges_become_one_range) {
  EXPECT_EQ(text(ranges_of({{10, 20}, {30, 40}, {20, 30}})), "10-40");
  EXPECT_EQ(text(ranges_of({{10, 20}, {30, 40}, {25, 30}})), "10-20 25-40");
  EXPECT_EQ(text(ranges_of({{10, 20}, {30, 40}, {20, 25}})), "10-25 30-40");
}

TEST(AddressRanges, take_cuts_bytes_from_the_lowest_or_highest_address_range_that_is_long_enough) {
  AddressRanges ranges = ranges_of({{0, 10}, {20, 50}, {60, 100}, {110, 115}});
  EXPECT_EQ(ranges.take(20, From::begin), memory + 20);
  EXPECT_EQ(ranges.take(20, From::end), memory + 80);
  EXPECT_EQ(ranges.take(30, From::begin), nullptr);
  EXPECT_EQ(ranges.take(10, From::begin), memory);
  EXPECT_EQ(text(ranges), "40-50 60-80 110-115");
}

TEST(AddressRanges, remove_returns_how_many_of_the_removed_bytes_were_in_the_address_ranges) {
  AddressRanges ranges = ranges_of({{0, 30}, {40, 60}, {70, 100}});
  EXPECT_EQ(ranges.remove(memory + 10, 10), 10U);
  EXPECT_EQ(text(ranges), "0-10 20-30 40-60 70-100");
  EXPECT_EQ(ranges.remove(memory + 25, 50), 30U);
  EXPECT_EQ(text(ranges), "0-10 20-25 75-100");
  EXPECT_EQ(ranges.remove(memory + 30, 40), 0U);
  EXPECT_EQ(ranges.remove(memory, 100), 40U);
  EXPECT_EQ(text(ranges), "");
}

}  // namespace
}  // namespace fsdp
