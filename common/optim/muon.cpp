#include <optim/muon.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace fsdp {
namespace {

constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;  // a, b, c of a Newton-Schulz iteration
constexpr double kSmallestNorm = 1e-7;
constexpr double kRms = 0.2;  // the usual root mean square of an update of AdamW

}  // namespace

void average_gradient(const OptimizerOptions& options, const Piece& piece,
                      const at::Tensor& update) {
  const at::NoGradGuard no_grad;
  piece.step.add_(1);
  piece.exp_avg.lerp_(piece.gradient, 1 - options.momentum);
  at::lerp_out(const_cast<at::Tensor&>(update), piece.gradient, piece.exp_avg, options.momentum);
}

// A Newton-Schulz iteration replaces X, which has at most as many rows as columns, by
// a X + (b S + c S S) X with S = X X^T. So each singular value s becomes a s + b s^3 + c s^5. Five
// iterations bring every s from 0.003 to 1 into the range from 0.68 to 1.21.
void orthogonalize(const at::Tensor& matrix) {
  const at::NoGradGuard no_grad;
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  const at::Tensor wide = rows > columns ? matrix.t() : matrix;
  const double norm = matrix.norm().item<double>();
  at::Tensor x = at::empty(wide.sizes(), matrix.options());
  // The copy is divided in place, because div_out(x, wide, ...) would make a temporary that is
  // transposed like `wide`.
  x.copy_(wide).div_(std::max(norm, kSmallestNorm));
  at::Tensor next = at::empty_like(x);
  at::Tensor square = at::empty({wide.size(0), wide.size(0)}, matrix.options());
  at::Tensor polynomial = at::empty_like(square);
  for (int i = 0; i < kNewtonSchulzIterations; ++i) {
    at::mm_out(square, x, x.t());
    at::addmm_out(polynomial, square, square, square, kB, kC);
    at::addmm_out(next, x, polynomial, x, kA, 1);
    std::swap(x, next);
  }
  const auto longer = static_cast<double>(std::max(rows, columns));
  matrix.zero_().add_(rows > columns ? x.t() : x, kRms * std::sqrt(longer));
}

void apply_orthogonal_update(const OptimizerOptions& options, const Piece& piece,
                             const at::Tensor& update) {
  const at::NoGradGuard no_grad;
  const double lr = options.current_lr();
  piece.parameter.mul_(1 - lr * options.weight_decay);
  piece.parameter.add_(update, -lr);
}

}  // namespace fsdp
