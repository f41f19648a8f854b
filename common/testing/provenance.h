#pragma once

#include <cstdint>
#include <string>

namespace fsdp::provenance {

// Gradients that show which ranks they came from. Rank r's gradient is W x 5^r in every element, so
// the mean over W ranks is a whole number; its digit r in base 5 is how often rank r was counted.
// With up to eight ranks all sums are exact in fp32. (The idea is from the provenance sets of
// LLM-Training-Puzzles.)
int64_t gradient(int rank, int world_size);
// Returns the right mean, in which every rank is counted once: 1 + 5 + 25 + ..., one term per rank.
int64_t mean(int world_size);

// Describes what is wrong with `value`, which should be the mean over ranks: "rank 2's gradient is
// missing", "rank 0 is counted twice", "the sum, not the mean: exactly 3 times too large". Returns
// "" if nothing is wrong.
std::string decode(double value, int world_size);

}  // namespace fsdp::provenance
