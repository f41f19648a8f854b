#include <clip_over_ranks.h>
#include <properties/models_under_test.h>
#include <torch/serialize.h>

#include <library/one_process.h>

#include <sstream>

namespace fsdp {

void ModelUnderTest::make_optimizer() {
  if (adam_) {
    optimizer = std::make_unique<torch::optim::Adam>(leaves, torch::optim::AdamOptions(0.01));
  } else {
    optimizer =
        std::make_unique<torch::optim::SGD>(leaves, torch::optim::SGDOptions(0.05).momentum(0.9));
  }
}

namespace {

void summon(FullyShardedDataParallel<Net>& model, const std::function<void()>& body) {
  model.summon_full_params(body);
}
void summon(DistributedDataParallel<Net>&, const std::function<void()>& body) {
  body();
}

std::shared_ptr<Communicator> communicator_of(TestRank& rank, const RandomProgram& program,
                                              int model) {
  if (program.shards > 0) return rank.hybrid(program.shards);
  return program.apart && model > 0 ? rank.another_communicator() : rank.communicator();
}

template <class Model, class Options>
class OnRank : public ModelUnderTest {
 public:
  OnRank(TestRank& rank, const RandomProgram& program, int model, const Options& options)
      : ModelUnderTest(program, model),
        rank_(rank),
        model_(*net, communicator_of(rank, program, model), options) {
    leaves = model_.parameters();
    make_optimizer();
  }
  void for_each_part(const std::function<void(int part)>& body) override { body(rank_.rank()); }
  void begin_backward(bool sync) override {
    if (!sync) no_sync_.reset(new NoSync(model_.no_sync()));
  }
  void end_backward(bool /*sync*/) override { no_sync_.reset(); }
  void zero_grad() override { model_.zero_grad(); }
  double clip(double norm_type) override { return model_.clip_grad_norm_(0.1, norm_type); }
  void summon(const std::function<void()>& body) override { fsdp::summon(model_, body); }
  StateDict state() override { return model_.state_dict(); }
  void load(const StateDict& state) override { model_.load_state_dict(state); }
  void save_optimizer() override { of_optimizer_ = model_.optim_state_dict(*optimizer); }
  void load_optimizer() override {
    make_optimizer();
    model_.load_optim_state_dict(*optimizer, of_optimizer_);
  }

 private:
  TestRank& rank_;
  Model model_;
  std::unique_ptr<NoSync> no_sync_;
  StateDict of_optimizer_;
};

class InOneProcess : public ModelUnderTest {
 public:
  InOneProcess(TestRank& rank, const RandomProgram& program, int seed)
      : ModelUnderTest(program, seed), rank_(rank), parts_(program.world) {
    leaves = net->parameters();
    make_optimizer();
    dropped_gradients();
  }
  void for_each_part(const std::function<void(int part)>& body) override {
    for (int part = 0; part < parts_; ++part)
      body(part);
  }
  void begin_backward(bool /*sync*/) override {
    reduced_.clear();
    for (const at::Tensor& leaf : leaves)
      reduced_.push_back(std::exchange(leaf.mutable_grad(), {}));
  }
  void begin_part(int part) override {
    for (size_t i = 0; i < leaves.size(); ++i)
      leaves[i].mutable_grad() = unreduced_[part][i];
  }
  void end_part(int part) override {
    for (size_t i = 0; i < leaves.size(); ++i)
      unreduced_[part][i] = std::exchange(leaves[i].mutable_grad(), {});
  }
  void end_backward(bool sync) override {
    waits_ = !sync;
    for (size_t i = 0; i < leaves.size(); ++i) {
      at::Tensor& sum = leaves[i].mutable_grad() = reduced_[i];
      if (!sync || !leaves[i].requires_grad()) continue;
      std::vector<at::Tensor> of_parts;
      for (auto& of_part : unreduced_) {
        const at::Tensor gradient = std::exchange(of_part[i], {});
        of_parts.push_back(gradient.defined() ? gradient.cpu() : at::zeros(leaves[i].sizes()));
      }
      const at::Tensor all = sum_as_tree(of_parts).view(leaves[i].sizes());
      const at::Tensor mean = all.to(leaves[i].device()).div(parts_);
      if (sum.defined()) {
        sum.add_(mean);
      } else {
        sum = mean;
      }
    }
  }
  void lost_gradients() override { lost_ = true; }
  void dropped_gradients() override {
    unreduced_.assign(parts_, std::vector<at::Tensor>(leaves.size()));
    waits_ = lost_ = false;
  }
  bool incomplete() const override { return waits_ || lost_; }
  void zero_grad() override { net->zero_grad(); }
  double clip(double norm_type) override {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& leaf : leaves)
      if (leaf.grad().defined()) gradients.push_back(leaf.grad());
    return clip_over_ranks(gradients, *rank_.communicator(), 0.1, norm_type);
  }
  void summon(const std::function<void()>& body) override { body(); }
  StateDict state() override {
    StateDict state;
    for (const auto& parameter : net->named_parameters())
      state.insert(parameter.key(), parameter.value().detach().clone());
    return state;
  }
  void load(const StateDict& state) override {
    const at::NoGradGuard no_grad;
    for (auto& parameter : net->named_parameters())
      parameter.value().copy_(state.at(parameter.key()));
  }
  void save_optimizer() override {
    std::ostringstream text;
    torch::save(*optimizer, text);
    of_optimizer_ = text.str();
  }
  void load_optimizer() override {
    make_optimizer();
    std::istringstream text(of_optimizer_);
    torch::load(*optimizer, text);
  }

 private:
  TestRank& rank_;
  int parts_;
  // The sums of the gradients of earlier backward passes in no_sync() and of the current pass, for
  // each part (the microbatch of one rank) and each leaf. When a pass is reduced, the tree sum over
  // the parts, divided once by their number, is added to `reduced_`, the gradients that were
  // reduced before.
  std::vector<std::vector<at::Tensor>> unreduced_;
  std::vector<at::Tensor> reduced_;
  bool waits_{}, lost_{};
  std::string of_optimizer_;
};

}  // namespace

std::unique_ptr<ModelUnderTest> model_on_rank(TestRank& rank, const RandomProgram& program,
                                              int model) {
  if (program.ddp)
    return std::make_unique<OnRank<DistributedDataParallel<Net>, DistributedDataParallelOptions>>(
        rank, program, model, DistributedDataParallelOptions{.bucket_cap_mb = program.cap});
  const FullyShardedDataParallelOptions options{
      .wrap = wrap_by_type("ThrowingBlock"),
      .reshard_after_forward = program.reshard_after_forward,
      .limit = program.limit};
  return std::make_unique<OnRank<FullyShardedDataParallel<Net>, FullyShardedDataParallelOptions>>(
      rank, program, model, options);
}

std::unique_ptr<ModelUnderTest> model_in_one_process(TestRank& rank, const RandomProgram& program,
                                                     int model) {
  return std::make_unique<InOneProcess>(rank, program, model);
}

}  // namespace fsdp
