#include <locate.h>

#include <algorithm>
#include <stdexcept>

namespace fsdp {
namespace {

struct Overlap {
  int64_t begin, end;  // [elements] of the parameter
  size_t saved_index;
};

std::vector<Overlap> sorted_overlaps(const ElementRange& range,
                                     const std::vector<ElementRange>& saved) {
  std::vector<Overlap> overlaps;
  for (size_t i = 0; i < saved.size(); ++i) {
    const int64_t begin = std::max(range.begin, saved[i].begin);
    const int64_t end = std::min(range.end, saved[i].end);
    if (saved[i].parameter == range.parameter && begin < end) overlaps.push_back({begin, end, i});
  }
  std::ranges::sort(overlaps, {}, &Overlap::begin);
  return overlaps;
}

[[noreturn]] void fail(const ElementRange& range, int64_t element, const std::string& what) {
  throw std::invalid_argument("locate: element " + std::to_string(element) + " of parameter '" +
                              range.parameter + "' is in " + what);
}

}  // namespace

std::vector<ReadItem> locate(const ElementRange& range, const std::vector<ElementRange>& saved) {
  std::vector<ReadItem> items;
  int64_t next = range.begin;  // the first element that is not found yet
  for (const auto& [begin, end, i] : sorted_overlaps(range, saved)) {
    if (begin > next) break;
    if (begin < next) fail(range, begin, "two saved ranges");
    items.push_back({i, begin - saved[i].begin, begin - range.begin, end - begin});
    next = end;
  }
  if (next < range.end) fail(range, next, "no saved range");
  return items;
}

}  // namespace fsdp
