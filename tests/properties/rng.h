#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace fsdp {

// A generator of random numbers that gives the same numbers with every standard library.
class Rng {
 public:
  explicit Rng(uint64_t seed) : engine_(seed) {}
  int below(int count) { return static_cast<int>(engine_() % static_cast<uint64_t>(count)); }
  bool one_in(int count) { return below(count) == 0; }
  template <class T>
  T one_of(const std::vector<T>& values) {
    return values[static_cast<size_t>(below(static_cast<int>(values.size())))];
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace fsdp
