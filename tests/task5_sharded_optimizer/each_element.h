#pragma once

#include <optim/read_item.h>

#include <stdexcept>

namespace fsdp {

// Returns the ReadItems that locate() must find for `range`, but with one item for each element. If
// an element of `range` is in no saved range or in more than one, throws std::invalid_argument,
// whose text is the number of the element.
inline std::vector<ReadItem> each_element(const ElementRange& range,
                                          const std::vector<ElementRange>& saved) {
  std::vector<ReadItem> items;
  for (int64_t element = range.begin; element < range.end; ++element) {
    const size_t before = items.size();
    for (size_t i = 0; i < saved.size(); ++i) {
      const auto& [parameter, begin, end] = saved[i];
      if (parameter == range.parameter && begin <= element && element < end)
        items.push_back({i, element - begin, element - range.begin, 1});
    }
    if (items.size() != before + 1) throw std::invalid_argument(std::to_string(element));
  }
  return items;
}

}  // namespace fsdp
