#pragma once

#include <planning/plan.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

struct Bar {
  std::string label;  // below the bar
  LiveBytes bytes;
};

// Returns an SVG chart of the bars, by memory class, and with `memory` a line at the memory of a
// rank. `caption` stands below the labels. The colours follow the reader's colour scheme.
std::string chart_of(const std::vector<Bar>& bars, std::optional<int64_t> memory,
                     const std::string& caption);

}  // namespace fsdp
