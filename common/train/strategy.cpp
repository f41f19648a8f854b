#include <memory/live_bytes.h>
#include <train/strategy.h>

namespace fsdp {

at::Tensor losses_without_gradients(Module& model, const Workload& workload,
                                    Arrangement arrangement, int rank, int64_t step) {
  const at::NoGradGuard no_grad;
  live_bytes::enter(Phase::forward);
  std::vector<at::Tensor> losses;
  for (int turn = 0; turn < arrangement.turns; ++turn) {
    const int part = arrangement.part(rank, turn);
    losses.push_back(workload.loss(model, part, arrangement.parts(), step).to(at::kDouble));
  }
  return at::stack(losses);
}

}  // namespace fsdp
