#include <base/todo.h>
#include <memory/live_bytes.h>
#include <optim/shard_layout.h>
#include <optim/update_rule.h>

#include <algorithm>
#include <stdexcept>

namespace fsdp {
namespace {

// The most elements of one part of a Piece. If options.moments is set, update() updates a piece
// part by part, so that the moments of only one part are in use at a time.
constexpr int64_t kPart = 1 << 22;

// Updates all `pieces` by AdamW in one kernel call. The caller has already incremented the step
// counts of the pieces.
void fused_adamw(const OptimizerOptions& options, const std::vector<Piece>& pieces) {
  std::vector<at::Tensor> parameters, gradients, exp_avgs, exp_avg_sqs, steps;
  for (const auto& piece : pieces) {
    parameters.push_back(piece.parameter);
    gradients.push_back(piece.gradient);
    exp_avgs.push_back(piece.exp_avg);
    exp_avg_sqs.push_back(piece.exp_avg_sq);
    steps.push_back(piece.step);
  }
  at::_fused_adamw_(parameters, gradients, exp_avgs, exp_avg_sqs, /*max_exp_avg_sqs=*/{}, steps,
                    options.lr, options.beta1, options.beta2, options.weight_decay, options.eps,
                    /*amsgrad=*/false, /*maximize=*/false);
}

// Returns the pieces, cut into parts of at most kPart elements. kPart is a multiple of kAlignment.
std::vector<Piece> in_parts(const std::vector<Piece>& pieces) {
  std::vector<Piece> parts;
  for (const auto& [parameter, gradient, exp_avg, exp_avg_sq, step] : pieces) {
    for (int64_t begin = 0; begin < parameter.numel(); begin += kPart) {
      const int64_t end = std::min(begin + kPart, parameter.numel());
      parts.push_back({parameter.slice(0, begin, end), gradient.slice(0, begin, end),
                       exp_avg.slice(0, begin, end), exp_avg_sq.slice(0, begin, end), step});
    }
  }
  return parts;
}

void update_adamw_in_store(const OptimizerOptions& options, const std::vector<Piece>& pieces) {
  for (const Piece& part : in_parts(pieces)) {
    fused_adamw(options, {part});
    options.moments->used(part.exp_avg);
    options.moments->used(part.exp_avg_sq);
  }
}

void update_adamw(const OptimizerOptions& options, std::vector<Piece>& pieces) {
  allocate_state(options, pieces);
  std::vector<at::Tensor> steps;
  for (const Piece& piece : pieces)
    steps.push_back(piece.step);
  at::_foreach_add_(steps, 1);  // increments the step counts of all pieces; on a GPU in one kernel
  options.moments ? update_adamw_in_store(options, pieces) : fused_adamw(options, pieces);
}

void update_sgd(const OptimizerOptions& options, std::vector<Piece>& pieces) {
  for (auto& [parameter, gradient, exp_avg, exp_avg_sq, step] : pieces) {
    const auto decayed =
        options.weight_decay == 0 ? gradient : gradient.add(parameter, options.weight_decay);
    parameter.add_(decayed, -options.lr);
  }
}

}  // namespace

void allocate_state(const OptimizerOptions& options, std::vector<Piece>& pieces) {
  if (options.kind == OptimizerOptions::Kind::sgd) return;
  const MemoryScope scope(MemoryClass::optimizer_state);
  for (Piece& piece : pieces) {
    if (piece.step.defined()) continue;
    const bool adamw = options.kind == OptimizerOptions::Kind::adamw;
    const auto zeros = [&] {
      return adamw && options.moments ? options.moments->zeros(piece.parameter.numel())
                                      : at::zeros_like(piece.parameter);
    };
    piece.exp_avg = zeros();
    if (adamw) piece.exp_avg_sq = zeros();
    piece.step = at::zeros({}, piece.parameter.options().dtype(at::kFloat));
  }
}

void update(const OptimizerOptions& options, std::vector<Piece>& pieces) {
  const at::NoGradGuard no_grad;
  for (const auto& piece : pieces) {
    if (piece.parameter.numel() % kAlignment != 0) {
      throw std::invalid_argument("update: a piece of " + std::to_string(piece.parameter.numel()) +
                                  " elements; pad pieces to a multiple of " +
                                  std::to_string(kAlignment));
    }
  }
  if (pieces.empty()) return;
  OptimizerOptions now = options;
  now.lr = options.current_lr();
  switch (options.kind) {
    case OptimizerOptions::Kind::adamw:
      return update_adamw(now, pieces);
    case OptimizerOptions::Kind::sgd:
      return update_sgd(now, pieces);
    case OptimizerOptions::Kind::muon:
      todo("ShardedOptimizer::step() with Muon", "5.7");
  }
}

}  // namespace fsdp
