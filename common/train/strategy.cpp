#include <comm/tree_sum.h>
#include <memory/live_bytes.h>
#include <train/strategy.h>

namespace fsdp {

ModelState state_without_ranges(const std::vector<NamedParameter>& parameters) {
  ModelState state;
  for (const auto& [name, tensor] : parameters)
    state.parameters.push_back({name, tensor.sizes().vec()});
  return state;
}

at::Tensor sum_of_losses(const std::vector<at::Tensor>& losses, const Arrangement& arrangement) {
  TreeSum sum(arrangement);
  std::vector<at::Tensor> running;
  for (const at::Tensor& loss : losses) {
    if (!running.empty()) sum.put_aside(running);
    running = sum.added({loss.detach().to(at::kDouble)});
  }
  return running[0].reshape({1});
}

at::Tensor sums_of_losses(const std::vector<at::Tensor>& losses, const Arrangement& arrangement) {
  if (arrangement.turns_first) return sum_of_losses(losses, {.turns = arrangement.turns});
  return at::stack(losses).detach().to(at::kDouble);
}

at::Tensor losses_without_gradients(Module& model, const Workload& workload,
                                    Arrangement arrangement, int rank, int64_t step) {
  const at::NoGradGuard no_grad;
  live_bytes::enter(Phase::forward);
  std::vector<at::Tensor> losses;
  for (int turn = 0; turn < arrangement.turns; ++turn) {
    const int part = arrangement.part(rank, turn);
    losses.push_back(workload.loss(model, part, arrangement.parts(), step));
  }
  return sums_of_losses(losses, arrangement);
}

}  // namespace fsdp
