#include "training.h"

#include <locate.h>
#include <state/whole_state.h>

#include <algorithm>
#include <cmath>

namespace {

constexpr int64_t kRows = 64;  // of all ranks together

// The buffers of floats: the running means and variances. BatchNorm's count of batches is not used.
std::vector<fsdp::NamedParameter> buffers_of(const torch::nn::Module& module) {
  std::vector<fsdp::NamedParameter> buffers;
  for (const auto& buffer : module.named_buffers())
    if (buffer.value().is_floating_point()) buffers.push_back({buffer.key(), buffer.value()});
  return buffers;
}

}  // namespace

Training::Training(std::shared_ptr<fsdp::Communicator> comm, std::string folder)
    : comm_(std::move(comm)), folder_(std::move(folder)) {
  sharded_ = fsdp::fully_shard(net_, comm_);
  set_rate(next_rate());
  if (!fsdp::latest_step(folder_)) return;
  const auto checkpoint = fsdp::find_checkpoint(folder_);
  fsdp::load_checkpoint(checkpoint.folder, state(), fsdp::locate, *comm_);
  steps_ = checkpoint.step;
}

// Warm-up, then the inverse square root. It depends on the step alone, so no checkpoint has to keep
// it.
double Training::next_rate() const {
  const auto step = static_cast<double>(steps_ + 1);
  return 1e-2 * std::min(step / 10, std::sqrt(10 / step));
}

// A ShardedOptimizer keeps its options. So one with the new rate takes over the state.
void Training::set_rate(double rate) {
  const std::vector<fsdp::ParameterGroup> groups{{"", {.lr = rate}}};
  auto next = std::make_unique<fsdp::ShardedOptimizer>(sharded_->units(), groups, comm_);
  if (optimizer_) {
    const auto from = optimizer_->state(), to = next->state();
    for (size_t i = 0; i < to.size(); ++i) {
      to[i].exp_avg.copy_(from[i].exp_avg);
      to[i].exp_avg_sq.copy_(from[i].exp_avg_sq);
      to[i].step.copy_(from[i].step);
    }
  }
  optimizer_ = std::move(next);
}

double Training::step() {
  torch::manual_seed(static_cast<uint64_t>(steps_));  // the same rows, wherever a run goes on
  const auto pair =
      torch::randn({2, kRows, kFeatures}).chunk(comm_->world_size(), 1)[comm_->rank()];
  const auto alike = torch::cosine_similarity(pair[0], pair[1]);
  const auto loss = (net_(pair) - alike).square().mean();
  loss.backward();
  set_rate(next_rate());
  optimizer_->clip_grad_norm(1);
  optimizer_->step();
  optimizer_->zero_grad();
  // Each rank has seen other rows. Those of rank 0 count, as in PyTorch's DDP.
  for (const auto& [name, buffer] : buffers_of(net_))
    comm_->broadcast(buffer, 0, name).wait();
  ++steps_;
  return loss.item<double>();
}

// What ShardedOptimizer::state() knows of the parameters, and the buffers, which every rank has
// whole.
fsdp::ModelState Training::state() {
  fsdp::ModelState state;
  state.ranges = optimizer_->state();
  for (const auto& [name, parameter] : fsdp::distinct_parameters(net_))
    state.parameters.push_back({name, parameter.sizes().vec()});
  for (const auto& [name, buffer] : buffers_of(net_)) {
    state.parameters.push_back({name, buffer.sizes().vec()});
    state.ranges.push_back({name, 0, buffer.numel(), buffer.view({-1}), {}, {}, {}});
  }
  return state;
}

void Training::save() {
  fsdp::save_checkpoint(folder_, fsdp::CheckpointFormat::sharded, steps_, {}, state(), *comm_);
}

std::string Training::sha256() {
  return fsdp::state_sha256(state(), *comm_);
}
