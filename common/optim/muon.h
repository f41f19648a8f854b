#pragma once

#include <optim/update_rule.h>

#include <cstdint>

namespace fsdp {

// The arithmetic of Muon (Jordan et al., 2024), with the definitions of torch.optim.Muon and its
// adjust_lr_fn="match_rms_adamw" (Liu et al., 2025, section 2.2). torch computes O in bf16; here
// everything is fp32. One update of a matrix P [rows, columns] with the gradient G:
//   E <- E + (1 - momentum) (G - E)      the average of the gradients, exp_avg
//   U  = G + momentum (E - G)            Nesterov momentum
//   O  = a matrix near the orthogonal matrix next to U, by five Newton-Schulz iterations
//   P <- (1 - lr weight_decay) P - lr 0.2 sqrt(max(rows, columns)) O
// Only O needs the whole matrix. All else treats each element by itself, so it can be computed on
// any piece of the matrix.

inline constexpr int kNewtonSchulzIterations = 5;

// Computes E and U of a piece of P, and increments the piece's step count. The state of the piece
// must be allocated. `update` [numel of the piece] becomes U; it must not overlap with the piece's
// tensors.
void average_gradient(const OptimizerOptions& options, const Piece& piece,
                      const at::Tensor& update);

// Replaces `matrix` [rows, columns], which holds U and is contiguous, by
// 0.2 sqrt(max(rows, columns)) O.
// - The bits depend only on the values and the sizes.
// - Zeros in the result are positive, so adding zeros does not change a bit of the result.
// Temporarily allocates orthogonalize_bytes().
void orthogonalize(const at::Tensor& matrix);
int64_t orthogonalize_bytes(int64_t rows, int64_t columns);
int64_t orthogonalize_flops(int64_t rows, int64_t columns);

// Updates one piece of P. `update` [numel of the piece]: what orthogonalize() has computed for the
// elements of the piece.
void apply_orthogonal_update(const OptimizerOptions& options, const Piece& piece,
                             const at::Tensor& update);

}  // namespace fsdp
