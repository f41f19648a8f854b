#pragma once

#include <properties/random_program.h>
#include <state_dict.h>
#include <testing/multi_rank.h>
#include <torch/optim/optimizer.h>

#include <library/models.h>

#include <functional>
#include <memory>
#include <vector>

namespace fsdp {

struct ThrowingBlock : LayerBlock {
  ThrowingBlock() {
    register_full_backward_pre_hook([this](Module&) {
      if (throws_in_backward) throw std::domain_error("no such gradient");
    });
    register_forward_hook([this](Module&, const at::Tensor&) {
      if (throws_in_hook) throw std::domain_error("not today");
      return at::Tensor();
    });
  }
  bool throws_in_backward{}, throws_in_hook{};
};

struct Net : RowOf<ThrowingBlock> {
  Net() : RowOf(3) { scale = register_parameter("scale", at::randn({7})); }
  at::Tensor forward(at::Tensor x) override { return RowOf::forward(std::move(x)) * scale; }
  at::Tensor scale;
};

// One model of a random program. The model is either on a rank, or in one process that computes the
// microbatches of all ranks.
class ModelUnderTest {
 public:
  ModelUnderTest(const RandomProgram& program, int seed) : adam_(program.adam) {
    torch::manual_seed(static_cast<uint64_t>(seed) + 1);
    net = std::make_shared<Net>();
    net->to(program.cuda ? at::kCUDA : at::kCPU);
  }
  virtual ~ModelUnderTest() = default;
  ModelUnderTest(const ModelUnderTest&) = delete;

  virtual void for_each_part(const std::function<void(int part)>& body) = 0;
  // Called around a backward pass. begin_backward() and end_backward() are called around the passes
  // of all microbatches of this process, begin_part() and end_part() around the pass of each single
  // microbatch.
  virtual void begin_backward(bool sync) = 0;
  virtual void begin_part(int /*part*/) {}
  virtual void end_part(int /*part*/) {}
  virtual void end_backward(bool sync) = 0;
  virtual void lost_gradients() {}  // called after a backward pass has thrown
  virtual void dropped_gradients() {}
  // Returns whether gradients are missing that a step would need.
  virtual bool incomplete() const { return false; }
  virtual void zero_grad() = 0;
  virtual double clip(double norm_type) = 0;
  virtual void summon(const std::function<void()>& body) = 0;
  virtual StateDict state() = 0;
  virtual void load(const StateDict& state) = 0;
  virtual void save_optimizer() = 0;
  virtual void load_optimizer() = 0;

  void make_optimizer();

  std::shared_ptr<Net> net;
  std::vector<at::Tensor> leaves;  // the tensors that the optimizer updates
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  std::vector<at::Tensor> average;  // a running average of each tensor of `leaves`
  StateDict saved;

 private:
  bool adam_;
};

// Both functions make model number `model` of the program with the same initial values.
// model_on_rank() shards it or replicates it over the ranks.
std::unique_ptr<ModelUnderTest> model_on_rank(TestRank& rank, const RandomProgram& program,
                                              int model);
std::unique_ptr<ModelUnderTest> model_in_one_process(TestRank& rank, const RandomProgram& program,
                                                     int model);

}  // namespace fsdp
