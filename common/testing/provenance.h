#pragma once

#include <cstdint>
#include <string>

namespace fsdp::provenance {

// Gradients that say where they came from. Rank r's is W x 5^r in every element, so the mean over W
// ranks is a whole number whose digit r, to the base 5, tells how often rank r was counted. With up
// to eight ranks all sums are exact in fp32. (After the provenance sets of LLM-Training-Puzzles.)
int64_t gradient(int rank, int world_size);
int64_t mean(int world_size);  // 1 + 5 + 25 + ...: every rank counted once

// What a wrong mean says: "rank 2's gradient is missing", "rank 0 is counted twice", "the sum, not
// the mean: exactly 3 times too large". Empty if it is right.
std::string decode(double value, int world_size);

}  // namespace fsdp::provenance
