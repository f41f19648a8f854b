#include <locate.h>

#include <algorithm>
#include <stdexcept>

namespace fsdp {
namespace {

// Returns the items of all saved ranges that have elements of `range`, in the order of the
// elements.
std::vector<ReadItem> overlaps(const ElementRange& range, const std::vector<ElementRange>& saved) {
  std::vector<ReadItem> items;
  for (size_t i = 0; i < saved.size(); ++i) {
    if (saved[i].parameter != range.parameter) continue;
    const int64_t begin = std::max(range.begin, saved[i].begin);
    const int64_t end = std::min(range.end, saved[i].end);
    if (begin < end) items.push_back({i, begin - saved[i].begin, begin - range.begin, end - begin});
  }
  std::sort(items.begin(), items.end(),
            [](const ReadItem& a, const ReadItem& b) { return a.dest_offset < b.dest_offset; });
  return items;
}

}  // namespace

std::vector<ReadItem> locate(const ElementRange& range, const std::vector<ElementRange>& saved) {
  auto items = overlaps(range, saved);
  int64_t found = 0;  // elements found so far, from the beginning of the range
  const auto check_begin = [&](int64_t next) {
    if (next == found) return;
    throw std::invalid_argument(
        range.parameter + ": element " + std::to_string(range.begin + std::min(next, found)) +
        (next > found ? " is in no saved range" : " is in two saved ranges"));
  };
  for (const ReadItem& item : items) {
    check_begin(item.dest_offset);
    found += item.length;
  }
  check_begin(range.end - range.begin);
  return items;
}

}  // namespace fsdp
