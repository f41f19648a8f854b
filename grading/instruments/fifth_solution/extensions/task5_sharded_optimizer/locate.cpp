#include <c10/util/irange.h>
#include <locate.h>

#include <algorithm>
#include <map>
#include <ranges>
#include <stdexcept>

namespace fsdp {

std::vector<ReadItem> locate(const ElementRange& range, const std::vector<ElementRange>& saved) {
  std::multimap<int64_t, ReadItem> by_element;  // counted in the wanted range
  for (const auto i : c10::irange(saved.size())) {
    const int64_t begin = std::max(range.begin, saved[i].begin);
    const int64_t end = std::min(range.end, saved[i].end);
    if (saved[i].parameter == range.parameter && begin < end) {
      const int64_t wanted = begin - range.begin;
      by_element.insert({wanted, {i, begin - saved[i].begin, wanted, end - begin}});
    }
  }

  const auto refuse = [&](int64_t element, const char* what) {
    throw std::invalid_argument("locate: element " + std::to_string(range.begin + element) +
                                " of parameter " + range.parameter + " is in " + what);
  };
  std::vector<ReadItem> items;
  int64_t found = 0;  // so many elements from the first on
  for (const ReadItem& item : by_element | std::views::values) {
    if (item.dest_offset > found) refuse(found, "no saved range");
    if (item.dest_offset < found) refuse(item.dest_offset, "two saved ranges");
    found += item.length;
    items.push_back(item);
  }
  if (found < range.end - range.begin) refuse(found, "no saved range");
  return items;
}

}  // namespace fsdp
