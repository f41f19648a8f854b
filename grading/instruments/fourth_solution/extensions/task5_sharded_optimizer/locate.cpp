#include <locate.h>

#include <algorithm>
#include <stdexcept>

namespace fsdp {
namespace {

[[noreturn]] void refuse(const ElementRange& range, int64_t dest_offset, const char* where) {
  throw std::invalid_argument("parameter '" + range.parameter + "': element " +
                              std::to_string(range.begin + dest_offset) + " is in " + where);
}

// Throws unless the items, in order, are all elements of `range`, each once.
void check_cover(const ElementRange& range, const std::vector<ReadItem>& items) {
  int64_t next = 0;
  for (const ReadItem& item : items) {
    if (item.dest_offset > next) refuse(range, next, "no saved range");
    if (item.dest_offset < next) refuse(range, item.dest_offset, "two saved ranges");
    next += item.length;
  }
  if (next < range.end - range.begin) refuse(range, next, "no saved range");
}

}  // namespace

std::vector<ReadItem> locate(const ElementRange& range, const std::vector<ElementRange>& saved) {
  std::vector<ReadItem> items;
  for (size_t i = 0; i < saved.size(); ++i) {
    const int64_t begin = std::max(range.begin, saved[i].begin);
    const int64_t end = std::min(range.end, saved[i].end);
    if (saved[i].parameter != range.parameter || begin >= end) continue;
    items.push_back({i, begin - saved[i].begin, begin - range.begin, end - begin});
  }
  std::ranges::sort(items, {}, &ReadItem::dest_offset);
  check_cover(range, items);
  return items;
}

}  // namespace fsdp
