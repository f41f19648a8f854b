#include <memory/address_ranges.h>

#include <algorithm>

namespace fsdp {

char* AddressRanges::take(size_t bytes, From from) {
  const auto fits = [bytes](const auto& range) { return range.second >= bytes; };
  auto found = ranges_.end();
  if (from == From::begin) {
    found = std::find_if(ranges_.begin(), ranges_.end(), fits);
  } else if (const auto last = std::find_if(ranges_.rbegin(), ranges_.rend(), fits);
             last != ranges_.rend()) {
    found = std::prev(last.base());
  }
  if (found == ranges_.end()) return nullptr;
  const auto [begin, length] = *found;
  char* const taken = from == From::begin ? begin : begin + (length - bytes);
  remove(taken, bytes);
  return taken;
}

void AddressRanges::insert(char* begin, size_t bytes) {
  auto next = ranges_.lower_bound(begin);
  if (next != ranges_.end() && next->first == begin + bytes) {
    bytes += next->second;
    next = ranges_.erase(next);
  }
  if (next != ranges_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == begin) {
      previous->second += bytes;
      return;
    }
  }
  ranges_.emplace(begin, bytes);
}

size_t AddressRanges::remove(char* begin, size_t bytes) {
  char* const end = begin + bytes;
  size_t removed = 0;
  auto range = ranges_.upper_bound(begin);
  // A range that starts at or before `begin` may end after `begin`, so remove() looks at it too.
  if (range != ranges_.begin()) --range;
  while (range != ranges_.end() && range->first < end) {
    const auto [first, length] = *range;
    char* const last = first + length;
    if (last <= begin) {
      ++range;
      continue;
    }
    range = ranges_.erase(range);
    if (first < begin) ranges_.emplace(first, begin - first);
    if (last > end) ranges_.emplace(end, last - end);
    removed += std::min(last, end) - std::max(first, begin);
  }
  return removed;
}

}  // namespace fsdp
