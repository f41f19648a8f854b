#pragma once

#include <optim/read_item.h>

#include <stdexcept>

namespace fsdp {

// Returns what locate() must find, as one item for each element. If an element is missing or is
// there twice, throws std::invalid_argument, whose text is the number of the element.
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
