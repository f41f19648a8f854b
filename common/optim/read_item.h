#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fsdp {

// Neighbouring elements of one parameter, as indices into the parameter in row-major order.
struct ElementRange {
  std::string parameter;   // name of the parameter; if it has several names, the first one
  int64_t begin{}, end{};  // the elements from `begin` to end - 1; none if begin == end

  bool operator==(const ElementRange&) const = default;
};

// The neighbouring elements that a saved range has in common with a wanted range.
struct ReadItem {
  size_t saved_index;    // index of the saved range in the list of saved ranges
  int64_t saved_offset;  // index of the first common element in the saved range
  int64_t dest_offset;   // index of the first common element in the wanted range
  int64_t length;        // number of common elements, above 0

  bool operator==(const ReadItem&) const = default;
};

// The type of the function locate() of task 5, which a program gets from the solutions or from the
// student's own code. locate() returns which elements of the `saved` ranges must be read to get the
// elements of `range`, in the order of the elements of `range`.
using Locate = std::function<std::vector<ReadItem>(const ElementRange& range,
                                                   const std::vector<ElementRange>& saved)>;

}  // namespace fsdp
