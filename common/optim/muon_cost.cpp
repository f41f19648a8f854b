// Defines orthogonalize_bytes() and orthogonalize_flops() of muon.h. They have a file of their own
// because docs/step.html, the web page that predicts a step, compiles them without LibTorch and so
// without muon.cpp.
#include <optim/muon.h>

#include <algorithm>

namespace fsdp {

int64_t orthogonalize_bytes(int64_t rows, int64_t columns) {
  const int64_t shorter = std::min(rows, columns);
  return static_cast<int64_t>(sizeof(float)) * 2 * (rows * columns + shorter * shorter);
}

int64_t orthogonalize_flops(int64_t rows, int64_t columns) {
  const int64_t shorter = std::min(rows, columns), longer = std::max(rows, columns);
  return kNewtonSchulzIterations * 2 * shorter * shorter * (2 * longer + shorter);
}

}  // namespace fsdp
