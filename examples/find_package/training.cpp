#include "training.h"

#include <fsdp/distributed_data_parallel.h>
#include <fsdp/fully_sharded_data_parallel.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>

namespace {

constexpr int64_t kRows = 64;  // number of rows that all ranks together use in a step
// The number of microbatches in a step on 1, 2 or 4 ranks, which therefore add the same gradients.
// With another number of ranks, each rank computes one microbatch.
constexpr int kParts = 4;
const std::string kSteps = "steps", kOfOptimizer = "optimizer/";

}  // namespace

// Ranks see different rows, so BatchNorm's running means and variances differ between ranks. With
// broadcast_buffers, all ranks use those of rank 0.
template <class Model>
Training<Model>::Training(std::shared_ptr<fsdp::Communicator> comm, const std::string& folder)
    : comm_(std::move(comm)),
      path_(folder + "/checkpoint.pt"),
      model_(net_, comm_, {.broadcast_buffers = true}),
      optimizer_(model_.parameters()) {
  std::filesystem::create_directories(folder);
  if (!std::filesystem::exists(path_)) return;
  fsdp::StateDict model, optimizer;
  for (const auto& entry : fsdp::load_state_dict_file(path_)) {
    if (entry.key() == kSteps) {
      steps_ = entry.value().item<int64_t>();
    } else if (entry.key().starts_with(kOfOptimizer)) {
      optimizer.insert(entry.key().substr(kOfOptimizer.size()), entry.value());
    } else {
      model.insert(entry.key(), entry.value());
    }
  }
  model_.load_state_dict(model);
  model_.load_optim_state_dict(optimizer_, optimizer);
}

// The learning rate warms up, then falls with the inverse square root of the step. It depends only
// on the step, so it need not be in a checkpoint.
template <class Model>
double Training<Model>::next_rate() const {
  const auto step = static_cast<double>(steps_ + 1);
  return 1e-2 * std::min(step / 10, std::sqrt(10 / step));
}

template <class Model>
double Training<Model>::backward(const at::Tensor& rows, int parts) {
  const auto alike = torch::cosine_similarity(rows[0], rows[1]);
  const auto loss = (model_(rows[0], rows[1]) - alike).square().mean() / parts;
  loss.backward();
  return loss.template item<double>();
}

template <class Model>
double Training<Model>::step() {
  // The rows of a step depend only on its number, so they are the same in a resumed run.
  torch::manual_seed(static_cast<uint64_t>(steps_));
  const int ranks = comm_->world_size();
  // The number of microbatches that this rank computes in a step.
  const int own = kParts % ranks == 0 ? kParts / ranks : 1;
  const auto rows = torch::randn({2, kRows, kFeatures}).chunk(own * ranks, 1);
  optimizer_.zero_grad();
  double loss = 0;
  for (int part = 0; part + 1 < own; ++part) {
    const auto no_sync = model_.no_sync();
    loss += backward(rows[comm_->rank() * own + part], own);
  }
  loss += backward(rows[comm_->rank() * own + own - 1], own);
  model_.clip_grad_norm_(1);
  for (auto& group : optimizer_.param_groups())
    group.options().set_lr(next_rate());
  optimizer_.step();
  ++steps_;
  return loss;
}

template <class Model>
fsdp::StateDict Training<Model>::state() {
  auto state = model_.state_dict();
  for (const auto& entry : model_.optim_state_dict(optimizer_))
    state.insert(kOfOptimizer + entry.key(), entry.value());
  state.insert(kSteps, torch::tensor(steps_));
  return state;
}

template <class Model>
void Training<Model>::save() {
  fsdp::save_state_dict(state(), path_, *comm_);
}

template <class Model>
size_t Training<Model>::hash(bool buffers) {
  std::string bytes;
  for (const auto& entry : state()) {
    if (!buffers && net_.named_buffers().contains(entry.key())) continue;
    const auto values = entry.value().contiguous();
    bytes.append(entry.key()).append(static_cast<const char*>(values.data_ptr()), values.nbytes());
  }
  return std::hash<std::string>()(bytes);
}

template class Training<fsdp::FullyShardedDataParallel<Net>>;
template class Training<fsdp::DistributedDataParallel<Net>>;
