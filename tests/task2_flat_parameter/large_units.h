#pragma once

#include <testing/retained_memory.h>

#include <memory>

#include "small_unit.h"

// This file makes 16 units of about 1 MB. They are large enough for RetainedMemory to measure.
namespace fsdp {

inline const std::vector<std::vector<int64_t>> kLargeShapes{
    {test_choice<int64_t>("rows of a large parameter", {256, 251, 260, 267}), 1024}, {1000}};
inline constexpr int kLargeUnits = 16;

inline int64_t large_bytes() {
  return kLargeUnits * (kLargeShapes[0][0] * 1024 + 1000) * int64_t{sizeof(float)};
}

using LargeUnits = std::vector<std::shared_ptr<FlatParameter>>;

inline LargeUnits make_large_units(TestRank& rank) {
  LargeUnits units;
  for (int i = 0; i < kLargeUnits; ++i) {
    units.push_back(make_flat_parameter("unit" + std::to_string(i), make_parameters(kLargeShapes),
                                        rank.communicator()));
  }
  return units;
}

// Unshards, reshards and reduces each unit, as forward and backward do. Observes the memory that
// the rank keeps afterwards.
inline void use_large_units(TestRank& rank) {
  rank.communicator();
  const RetainedMemory memory;
  const LargeUnits units = make_large_units(rank);
  as_far_as_written([&] {
    for (const auto& unit : units) {
      unit->unshard();
      unit->reshard();
    }
    rank.observe("what the rank keeps after reshard()", memory.taken());
    for (const auto& unit : units) {
      unit->unshard();
      collect_all(*unit, rank);
      reduce(*unit);
      unit->reshard();
    }
    rank.observe("what the rank keeps after reduce_gradient()", memory.taken());
  });
}

}  // namespace fsdp
