#pragma once

#include <planning/plan.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fsdp {

struct Bar {
  std::string label;  // the text below the bar in the chart
  LiveBytes bytes;
};

// Returns an SVG chart in which each bar shows bytes by memory class. If `memory`, the memory of a
// rank, is given, a line marks it. `caption` stands below the labels. The colours follow the
// viewer's colour scheme, light or dark.
std::string chart_of(const std::vector<Bar>& bars, std::optional<int64_t> memory,
                     const std::string& caption);

}  // namespace fsdp
