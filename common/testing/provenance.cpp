#include <testing/provenance.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

namespace fsdp::provenance {
namespace {

constexpr int64_t kBase = 5;

int64_t power(int rank) {
  int64_t result = 1;
  for (int i = 0; i < rank; ++i)
    result *= kBase;
  return result;
}

// Returns how often the gradient of each rank is counted in the mean `value`; nothing if no counts
// from 0 to 4 give `value`.
std::optional<std::vector<int64_t>> counts(double value, int world_size) {
  if (!(value >= 0) || value != std::floor(value) ||
      value >= static_cast<double>(power(world_size)))
    return std::nullopt;
  std::vector<int64_t> digits;
  auto left = static_cast<int64_t>(value);
  for (int rank = 0; rank < world_size; ++rank, left /= kBase)
    digits.push_back(left % kBase);
  return digits;
}

bool at_most_once(const std::vector<int64_t>& counts) {
  return std::all_of(counts.begin(), counts.end(), [](int64_t count) { return count <= 1; });
}

// Describes all counts that are not 1: "rank 1's gradient is missing, rank 2 is counted twice".
std::string describe(const std::vector<int64_t>& counts) {
  std::string text;
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    if (counts[rank] == 1) continue;
    const std::string name = (text.empty() ? "rank " : ", rank ") + std::to_string(rank);
    if (counts[rank] == 0) {
      text += name + "'s gradient is missing";
    } else {
      text += name + " is counted " +
              (counts[rank] == 2 ? "twice" : std::to_string(counts[rank]) + " times");
    }
  }
  return text;
}

}  // namespace

int64_t gradient(int rank, int world_size) {
  return world_size * power(rank);
}

int64_t mean(int world_size) {
  return (power(world_size) - 1) / (kBase - 1);
}

std::string decode(double value, int world_size) {
  const auto expected = static_cast<double>(mean(world_size));
  const std::string times = std::to_string(world_size) + " times";
  if (value == expected) return "";
  const double sum = expected * world_size;
  if (value == sum) {
    return "the sum, not the mean: exactly " + times + " too large" +
           (world_size == 2 ? ", as with a division by W - 1" : "");
  }
  if (value == expected / world_size) return "divided by W twice: exactly " + times + " too small";
  if (value == 0) {
    return "no rank's gradient is in it: none was collected before the reduce-scatter, or its "
           "result is not used; the steps above show when it was issued";
  }
  for (const int divisor : {world_size - 1, world_size + 1}) {
    if (!(std::abs(value * divisor - sum) <= 1e-6 * sum)) continue;
    return "every rank is counted once, but the sum is divided by " + std::to_string(divisor) +
           ", not by W = " + std::to_string(world_size);
  }
  // Checks first whether `value` is a sum that was not divided: with 4 ranks, such a sum could look
  // like a mean in which one rank is counted 4 times.
  const auto undivided = counts(value / world_size, world_size);
  if (undivided && at_most_once(*undivided)) {
    return describe(*undivided) + ", and it is the sum, not the mean";
  }
  if (const auto found = counts(value, world_size)) return describe(*found);
  return "no sum of the ranks' gradients gives it";
}

}  // namespace fsdp::provenance
