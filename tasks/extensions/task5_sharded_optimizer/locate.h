#pragma once

#include <optim/read_item.h>

#include <vector>

namespace fsdp {

// Extension (see "Going further" in the handout). A checkpoint holds the ranges `saved`. Returns
// which parts of these ranges to read, to get the elements of `range`.
// - The saved ranges are of any parameters and in any order; some may be empty.
// - There is one item for each saved range that overlaps `range`, and no other item. The items have
//   the order of their elements.
// - Outside `range`, elements may be missing or saved twice.
// Throws std::invalid_argument if an element of `range` is in no saved range, or in two. The
// message names the parameter and the first such element.
std::vector<ReadItem> locate(const ElementRange& range, const std::vector<ElementRange>& saved);

}  // namespace fsdp
