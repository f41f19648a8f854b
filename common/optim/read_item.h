#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// Neighbouring elements of one parameter, counted in the parameter itself, in row-major order.
struct ElementRange {
  std::string parameter;   // its first name
  int64_t begin{}, end{};  // [elements] begin <= end

  bool operator==(const ElementRange&) const = default;
};

// Neighbouring elements that one saved range has of a range that somebody wants.
struct ReadItem {
  size_t saved_index;    // which of the saved ranges
  int64_t saved_offset;  // [elements] from the beginning of the saved range
  int64_t dest_offset;   // [elements] from the beginning of the wanted range
  int64_t length;        // [elements] above 0

  bool operator==(const ReadItem&) const = default;
};

// What to read for the elements of `range`, in their order. It is locate() of a stack's task 5.
using Locate = std::function<std::vector<ReadItem>(const ElementRange& range,
                                                   const std::vector<ElementRange>& saved)>;

}  // namespace fsdp
