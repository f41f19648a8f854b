#pragma once

#include <gtest/gtest.h>
#include <train/trainer.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// This file has what a test needs to run the trainer with a strategy that trains nothing.
namespace fsdp {

// A strategy that trains nothing and has no parameters. Its loss is 1.
class UntrainedStrategy : public Strategy {
 public:
  explicit UntrainedStrategy(std::shared_ptr<Communicator> comm) : comm_(std::move(comm)) {
    layout_.world_size = comm_->world_size();
  }
  at::Tensor forward_backward(int64_t) override { return at::ones({1}); }
  at::Tensor evaluate(const MicrobatchValue&) override { return forward_backward(0); }
  double clip_grad_norm(double, double) override { return 1; }
  void step() override {}
  void skip_step() override {}
  void set_loss_scale(int64_t) override {}
  void full_parameters(const ParameterVisitor&) override {}
  ModelState state() override { return {}; }
  std::vector<Owned> owned() const override { return {}; }
  const ShardLayout& layout() const override { return layout_; }

 protected:
  std::shared_ptr<Communicator> comm_;

 private:
  ShardLayout layout_;
};

// Returns an FsdpImplementation whose make_strategy() makes an object of class Fake on each rank.
template <class Fake>
FsdpImplementation with() {
  FsdpImplementation fsdp;
  fsdp.make_strategy = [](const TrainConfig&, Workload,
                          std::shared_ptr<Communicator> comm) -> std::unique_ptr<Strategy> {
    return std::make_unique<Fake>(std::move(comm));
  };
  fsdp.shard_layout = [](const TrainConfig& config, const Workload&) {
    ShardLayout layout;
    layout.world_size = config.shards();
    return layout;
  };
  return fsdp;
}

inline TrainConfig small_run(int world = 2) {
  TrainConfig config;
  config.ranks.mode = Mode::fsdp;
  config.ranks.world = world;
  config.model.name = "gpt2-tiny";
  config.data.kind = DataKind::published;
  config.training.steps = 4;
  config.training.batch = world;
  config.training.seq = 4;
  config.ranks.comm.timeout = std::chrono::seconds(20);
  return config;
}

struct Outcome {
  int status;
  std::string output, errors;
};

inline Outcome train(const FsdpImplementation& fsdp, const TrainConfig& config) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int status = run_training(config, fsdp, "fsdp train");
  const std::string output = testing::internal::GetCapturedStdout();
  return {status, output, testing::internal::GetCapturedStderr()};
}

inline std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);)
    lines.push_back(line);
  return lines;
}

}  // namespace fsdp
