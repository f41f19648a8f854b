#include <sched.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/schedulers/step_lr.h>

#include <library/models.h>
#include <library/one_process.h>

#include <chrono>

namespace fsdp {
namespace {

MULTI_RANK_SUITE(TorchOptim);

template <class Optimizer, class Options>
OptimizerOf optimizer_of(const Options& options) {
  return [options](std::vector<at::Tensor> parameters) {
    return std::make_unique<Optimizer>(std::move(parameters), options);
  };
}

struct Scheduled : torch::optim::SGD {
  using SGD::SGD;
  at::Tensor step(LossClosure closure) override {
    const at::Tensor loss = SGD::step(std::move(closure));
    scheduler.step();
    EXPECT_EQ(param_groups()[0].options().get_lr(), rate /= 2);
    return loss;
  }
  torch::optim::StepLR scheduler{*this, /*step_size=*/1, /*gamma=*/0.5};
  // The expected learning rate, which step() halves before each comparison. It starts at twice the
  // optimizer's learning rate, because the first step of StepLR changes nothing.
  double rate{0.2};
};

// Adam with one learning rate per group, which changes at every step. Before each step, it clips
// the gradients by value.
struct Cutting : torch::optim::Adam {
  using Adam::Adam;
  at::Tensor step(LossClosure closure) override {
    for (size_t group = 0; group < param_groups().size(); ++group) {
      torch::nn::utils::clip_grad_value_(param_groups()[group].params(), 0.01);
      param_groups()[group].options().set_lr(0.1 / static_cast<double>(1 + group + steps));
    }
    ++steps;
    return Adam::step(std::move(closure));
  }
  int steps{};
};
std::unique_ptr<torch::optim::Optimizer> cutting(const std::vector<at::Tensor>& parameters) {
  const torch::optim::AdamOptions options = torch::optim::AdamOptions(0.1).amsgrad(true);
  const auto third = parameters.begin() + 3;
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>(parameters.begin(), third),
                      std::make_unique<torch::optim::AdamOptions>(
                          torch::optim::AdamOptions(0.1).weight_decay(0.1)));
  groups.emplace_back(std::vector<at::Tensor>(third, parameters.end()));
  return std::make_unique<Cutting>(groups, options);
}

// Returns AdamW with weight decay for weights only, not for biases and scales.
std::unique_ptr<torch::optim::Optimizer> decaying_by_dim(const std::vector<at::Tensor>& all) {
  std::vector<at::Tensor> weights, others;
  for (const at::Tensor& parameter : all)
    (parameter.dim() >= 2 ? weights : others).push_back(parameter);
  const auto group = [](const std::vector<at::Tensor>& parameters, double decay) {
    return torch::optim::OptimizerParamGroup(
        parameters, std::make_unique<torch::optim::AdamWOptions>(
                        torch::optim::AdamWOptions(0.05).weight_decay(decay)));
  };
  return std::make_unique<torch::optim::AdamW>(
      std::vector<torch::optim::OptimizerParamGroup>{group(weights, 0.5), group(others, 0)});
}

// Calls torch's kernels for lists of tensors, such as at::_foreach_add_(), which torch's C++
// optimizers do not call.
struct OfLists : torch::optim::SGD {
  using SGD::SGD;
  at::Tensor step(LossClosure /*closure*/) override {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> parameters, gradients, momenta, squares, steps;
    for (const at::Tensor& parameter : param_groups()[0].params()) {
      if (!parameter.grad().defined()) continue;
      parameters.push_back(parameter);
      gradients.push_back(parameter.grad());
      for (auto* moments : {&momenta, &squares})
        moments->push_back(at::zeros_like(parameter));
      steps.push_back(at::ones({}));
    }
    at::_foreach_mul_(parameters, 0.99);
    at::_foreach_add_(parameters, at::_foreach_sign(gradients), -0.01);
    at::_fused_adamw_(parameters, gradients, momenta, squares, {}, steps, 0.01, 0.9, 0.99, 0.1,
                      1e-8, false, false);
    return {};
  }
};

MULTI_RANK_TEST(TorchOptim, torchs_optimizers_end_with_the_bits_of_one_process) {
  using namespace torch::optim;
  expect_equal_to_one_process(
      world_size(),
      {{.name = "AdamW"},
       {.name = "momentum", .optimizer = momentum},
       {.name = "RMSprop", .optimizer = optimizer_of<RMSprop>(RMSpropOptions(0.01))},
       {.name = "Adagrad", .optimizer = optimizer_of<Adagrad>(AdagradOptions(0.05))},
       {.name = "a scheduler", .optimizer = optimizer_of<Scheduled>(SGDOptions(0.1))},
       {.name = "groups with rates of their own, and cut gradients", .optimizer = cutting},
       {.name = "groups by dim()", .optimizer = decaying_by_dim},
       {.name = "kernels of lists", .optimizer = optimizer_of<OfLists>(SGDOptions(0.1))},
       // A weight of about 45,000 elements, so that torch's vectorized kernels process many vectors
       // and a remainder.
       {.name = "large parameters",
        .build = [] { return std::make_shared<BlockNet>(1, 211); },
        .loss = mean_square_of({3, 211})}});
}

// The penalty is a function of this rank's elements of the parameters. Its gradient must be added
// to the parameter's gradient once, and must not be averaged over ranks.
MULTI_RANK_TEST(TorchOptim,
                the_gradient_of_a_penalty_on_this_ranks_part_is_added_to_the_parameters_gradient) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    at::Tensor penalty = at::zeros({});
    for (const at::Tensor& parameter : model.parameters())
      penalty = penalty + this_ranks_part(parameter).square().sum();
    const auto x = batch_part(rank.rank(), rank.world_size(), 0, {5, 7});
    ((*net)(x).sum() * 0 + penalty).backward();
    for (const at::Tensor& parameter : model.parameters())
      EXPECT_TRUE(at::equal(this_ranks_part(parameter.grad()), 2 * this_ranks_part(parameter)));
  });
}

// Calls sched_yield() `times` times, but for at most 10 ms, so that the other ranks run ahead of
// this one.
void give_way(int times) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
  for (int i = 0; i < times && std::chrono::steady_clock::now() < end; ++i)
    sched_yield();
}

// Checks the gathered values in forward and backward. Other ranks read the shard of a rank in
// place, so a rank that runs ahead must not change its shard before they have read it. Ranks above
// 0 fall behind: they yield the processor at the start of a forward without gradients, and in
// backward when the gradient of the output arrives, which is long after the all-gather was issued.
struct CheckingBlock : LayerBlock {
  at::Tensor forward(at::Tensor x) override {
    if (!at::GradMode::is_enabled()) give_way(yields);
    check();
    const at::Tensor inside = linear(x);
    if (!inside.requires_grad()) return x + inside.tanh();
    inside.register_hook([this](const at::Tensor&) { check(); });
    const at::Tensor output = x + inside.tanh();
    output.register_hook([this](const at::Tensor&) { give_way(yields); });
    return output;
  }
  void check() {
    EXPECT_TRUE(linear->weight.eq(expected).all().item<bool>());
    ++checks;
  }
  int yields{}, expected{}, checks{};
};

// In the rounds with backward, all parameters are frozen. So there is no reduce-scatter, which
// would make the ranks wait for each other.
MULTI_RANK_TEST(TorchOptim, shards_can_be_written_right_after_forward_or_backward) {
  run_ranks(world_size(), [](TestRank& rank) {
    for (const bool with_backward : {false, true}) {
      torch::manual_seed(1);
      RowOf<CheckingBlock> net(4);
      for (const at::Tensor& parameter : net.parameters())
        parameter.set_requires_grad(!with_backward);
      for (const auto& block : net.blocks)
        if (!with_backward || block == net.blocks[0]) block->yields = rank.rank() * 500;
      FullyShardedDataParallel model(net, rank.communicator(), {.limit = 4});
      for (int round = 1; round <= 20; ++round) {
        for (const at::Tensor& parameter : model.parameters())
          parameter.detach().fill_(round);
        for (const auto& block : net.blocks)
          block->expected = round;
        const at::AutoGradMode mode(with_backward);
        const at::Tensor sum = net(at::zeros({1, 7}).set_requires_grad(with_backward)).sum();
        if (with_backward) sum.backward();
      }
      for (const auto& block : net.blocks)
        EXPECT_EQ(block->checks, with_backward ? 40 : 20)
            << "each block checks once in forward and, with backward, once in backward";
    }
  });
}

MULTI_RANK_TEST(TorchOptim, shards_can_be_written_right_after_summon_full_params) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto net = block_net(6);
    FullyShardedDataParallel model(*net, rank.communicator());
    for (int round = 1; round <= 100; ++round) {
      for (const at::Tensor& parameter : model.parameters())
        parameter.detach().fill_(round);
      const auto compare = [&] {
        for (const at::Tensor& parameter : net->parameters())
          EXPECT_TRUE(parameter.eq(round).all().item<bool>());
      };
      model.summon_full_params(compare, {.writeback = false});
    }
  });
}

}  // namespace
}  // namespace fsdp
