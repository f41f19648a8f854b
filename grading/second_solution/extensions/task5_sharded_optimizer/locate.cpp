#include <locate.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <stdexcept>

namespace fsdp {
namespace {

// Which saved range has this element; it has to be one.
size_t owner_of(const std::string& parameter, int64_t element,
                const std::vector<ElementRange>& saved) {
  const auto holds = [&](const ElementRange& range) {
    return range.parameter == parameter && range.begin <= element && element < range.end;
  };
  const auto first = std::find_if(saved.begin(), saved.end(), holds);
  const auto count = std::count_if(saved.begin(), saved.end(), holds);
  if (count != 1)
    throw std::invalid_argument(std::to_string(count) + " saved ranges have element " +
                                std::to_string(element) + " of " + parameter);
  return static_cast<size_t>(first - saved.begin());
}

}  // namespace

// Cuts the range wherever a saved one begins or ends: between two cuts all elements have one owner.
std::vector<ReadItem> locate(const ElementRange& range, const std::vector<ElementRange>& saved) {
  std::set<int64_t> cuts{range.begin, range.end};
  for (const ElementRange& other : saved) {
    if (other.parameter != range.parameter) continue;
    cuts.insert(std::clamp(other.begin, range.begin, range.end));
    cuts.insert(std::clamp(other.end, range.begin, range.end));
  }
  std::vector<ReadItem> items;
  for (auto cut = cuts.begin(); *cut != range.end; ++cut) {
    const size_t owner = owner_of(range.parameter, *cut, saved);
    const int64_t length = *std::next(cut) - *cut;
    if (!items.empty() && items.back().saved_index == owner) {
      items.back().length += length;
    } else {
      items.push_back({owner, *cut - saved[owner].begin, *cut - range.begin, length});
    }
  }
  return items;
}

}  // namespace fsdp
