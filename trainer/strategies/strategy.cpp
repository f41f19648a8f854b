#include <config/arrangement.h>
#include <memory/live_bytes.h>
#include <offload/nameless_file.h>
#include <offload/state_file.h>
#include <prediction/schedule.h>
#include <strategies/strategy.h>

namespace fsdp {
namespace {

const std::string kSums = "sums of gradients that wait";

}  // namespace

void backward(const at::Tensor& loss, int64_t scale) {
  loss.backward(at::full_like(loss, scale));
}

std::vector<int> parts_of(const Arrangement& arrangement, int rank) {
  std::vector<int> parts;
  for (int turn = 0; turn < arrangement.turns; ++turn)
    parts.push_back(arrangement.part(rank, turn));
  return parts;
}

std::vector<at::Tensor> compute_parts(const std::vector<int>& parts, const Arrangement& sums,
                                      const Turn& turn) {
  TreeSum gradients(sums);
  std::vector<at::Tensor> losses;
  for (const int part : parts) {
    const bool begins = losses.empty() || turn.apart || gradients.puts_aside();
    if (begins && !losses.empty()) gradients.put_aside(turn.leave());
    live_bytes::enter(Phase::forward);
    losses.push_back(turn.loss(part));
    live_bytes::enter(Phase::backward);
    turn.backward(losses.back(), begins);
    losses.back() = losses.back().detach();
    turn.add(gradients);
  }
  return losses;
}

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
  return running[0].unsqueeze(0);
}

at::Tensor sums_of_losses(const std::vector<at::Tensor>& losses, const Arrangement& arrangement) {
  if (arrangement.turns_first) return sum_of_losses(losses, {.turns = arrangement.turns});
  return at::stack(losses).detach().to(at::kDouble);
}

std::vector<at::Tensor> values_of_parts(Module& model, const Strategy::PartValue& value,
                                        const std::vector<int>& parts, int of) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> values;
  for (const int part : parts)
    values.push_back(value(model, part, of));
  return values;
}

TrainConfig with_state_file(TrainConfig config, const ShardLayout& layout, int rank) {
  if (config.offload_dir.empty()) return config;
  const Schedule step = schedule(config, layout, rank);
  config.optimizer.moments =
      std::make_shared<StateFile>(config.offload_dir, step.state_file_bytes, config.pinned);
  const NamelessFile room(config.offload_dir, step.put_aside_bytes, kSums);
  return config;
}

std::vector<at::Tensor> put_aside(std::vector<at::Tensor> sum, const std::string& offload_dir) {
  if (offload_dir.empty()) return sum;
  return copies_in_file(offload_dir, sum, kSums);
}

}  // namespace fsdp
