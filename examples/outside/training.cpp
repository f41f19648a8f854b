#include "training.h"

#include <digest/sha256.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace {

constexpr int64_t kRows = 64;  // of all ranks together
const std::string kSteps = "steps", kOfOptimizer = "optimizer/";

}  // namespace

// Each rank sees other rows. With broadcast_buffers the running means are those of rank 0.
Training::Training(std::shared_ptr<fsdp::Communicator> comm, const std::string& folder)
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

// Warm-up, then the inverse square root. It depends on the step alone, so no checkpoint has to keep
// it.
double Training::next_rate() const {
  const auto step = static_cast<double>(steps_ + 1);
  return 1e-2 * std::min(step / 10, std::sqrt(10 / step));
}

double Training::step() {
  torch::manual_seed(static_cast<uint64_t>(steps_));  // the same rows, wherever a run goes on
  const auto rows =
      torch::randn({2, kRows, kFeatures}).chunk(comm_->world_size(), 1)[comm_->rank()];
  const auto alike = torch::cosine_similarity(rows[0], rows[1]);
  const auto loss = (model_(rows[0], rows[1]) - alike).square().mean();
  optimizer_.zero_grad();
  loss.backward();
  model_.clip_grad_norm_(1);
  for (auto& group : optimizer_.param_groups())
    group.options().set_lr(next_rate());
  optimizer_.step();
  ++steps_;
  return loss.item<double>();
}

fsdp::StateDict Training::state() {
  auto state = model_.state_dict();
  for (const auto& entry : model_.optim_state_dict(optimizer_))
    state.insert(kOfOptimizer + entry.key(), entry.value());
  state.insert(kSteps, torch::tensor(steps_));
  return state;
}

void Training::save() {
  fsdp::save_state_dict(state(), path_, *comm_);
}

std::string Training::sha256() {
  fsdp::Sha256 hash;
  for (const auto& entry : state()) {
    const auto values = entry.value().contiguous();
    hash.update(std::as_bytes(std::span(entry.key())));
    hash.update({static_cast<const std::byte*>(values.data_ptr()), values.nbytes()});
  }
  return hash.hex();
}
