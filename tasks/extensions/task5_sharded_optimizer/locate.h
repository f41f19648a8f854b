#pragma once

#include <optim/read_item.h>

#include <vector>

namespace fsdp {

// Extension (see "Going further" in the handout): returns what to read for the elements of `range`
// from a checkpoint that has the ranges `saved`.
// - The saved ranges are of any parameters and in any order; some may be empty.
// - There is one item for each saved range that has elements of `range`, and none for any other.
//   Items come in the order of the elements.
// - What is missing, or saved twice, outside `range` does not matter.
// Throws std::invalid_argument if an element of `range` is in no saved range, or in two. The
// message names the parameter and the first such element.
std::vector<ReadItem> locate(const ElementRange& range, const std::vector<ElementRange>& saved);

}  // namespace fsdp
