#pragma once

#include <optim/read_item.h>

#include <vector>

namespace fsdp {

// Extension (see "Going further" in the handout): what to read for the elements of `range` from a
// checkpoint that has the ranges `saved`. These are of any parameters and in any order; some may be
// empty. There is one item for each saved range that has elements of `range`, and none for any
// other. Items come in the order of the elements. Throws std::invalid_argument naming the parameter
// and the first element of `range` that is in no saved range, or in two. What is missing, or saved
// twice, outside `range` does not matter.
std::vector<ReadItem> locate(const ElementRange& range, const std::vector<ElementRange>& saved);

}  // namespace fsdp
