#include <sched.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/schedulers/step_lr.h>

#include <library/models.h>
#include <library/one_process.h>

#include <chrono>

namespace fsdp {
namespace {

MULTI_RANK_SUITE(TorchOptim);

Training training_with(const OptimizerOf& optimizer) {
  return {.build = [] { return block_net(); }, .optimizer = optimizer};
}

template <class Optimizer, class Options>
OptimizerOf optimizer_of(const Options& options) {
  return [options](std::vector<at::Tensor> parameters) {
    return std::make_unique<Optimizer>(std::move(parameters), options);
  };
}

MULTI_RANK_TEST(TorchOptim, adamw_momentum_rmsprop_and_adagrad_equal_one_process) {
  using namespace torch::optim;
  const auto rmsprop = optimizer_of<RMSprop>(RMSpropOptions(0.01));
  const auto adagrad = optimizer_of<Adagrad>(AdagradOptions(0.05));
  for (const OptimizerOf& optimizer : {OptimizerOf(adamw), OptimizerOf(momentum), rmsprop, adagrad})
    expect_equal_to_one_process(world_size(), training_with(optimizer));
}

MULTI_RANK_TEST(TorchOptim, amsgrad_with_groups_equals_one_process) {
  expect_equal_to_one_process(world_size(), training_with([](std::vector<at::Tensor> parameters) {
                                std::vector<at::Tensor> first{parameters.front()};
                                parameters.erase(parameters.begin());
                                std::vector<torch::optim::OptimizerParamGroup> groups;
                                groups.emplace_back(
                                    first, std::make_unique<torch::optim::AdamOptions>(
                                               torch::optim::AdamOptions(0.1).weight_decay(0.1)));
                                groups.emplace_back(parameters);
                                return std::make_unique<torch::optim::Adam>(
                                    groups, torch::optim::AdamOptions(0.01).amsgrad(true));
                              }));
}

// 40,003 elements: kernels with vectors, and a tail.
MULTI_RANK_TEST(TorchOptim, large_parameters_equal_one_process) {
  Training training = training_with(adamw);
  training.build = [] {
    torch::manual_seed(4);
    return std::make_shared<BlockNet>(1, 211);
  };
  training.loss = [](Module& model, int part, int parts, int step) {
    return model(batch_part(part, parts, step, {3, 211})).square().mean();
  };
  expect_equal_to_one_process(world_size(), training);
}

MULTI_RANK_TEST(TorchOptim, a_scheduler_of_torch_changes_the_rate) {
  struct Scheduled : torch::optim::SGD {
    using SGD::SGD;
    at::Tensor step(LossClosure closure) override {
      const at::Tensor loss = SGD::step(std::move(closure));
      scheduler.step();
      EXPECT_EQ(param_groups()[0].options().get_lr(), rate /= 2);
      return loss;
    }
    torch::optim::StepLR scheduler{*this, /*step_size=*/1, /*gamma=*/0.5};
    double rate{0.2};  // a scheduler's first step changes nothing
  };
  expect_equal_to_one_process(
      world_size(), training_with(optimizer_of<Scheduled>(torch::optim::SGDOptions(0.1))));
}

// The penalty is on this rank's elements; a parameter's gradient then has that of the penalty once.
MULTI_RANK_TEST(TorchOptim, a_penalty_on_the_shards_is_differentiated) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    at::Tensor penalty = at::zeros({});
    for (const at::Tensor& parameter : model.parameters())
      penalty = penalty + parameter.square().sum();
    const auto x = batch_part(rank.rank(), rank.world_size(), 0, {5, 7});
    ((*net)(x).sum() * 0 + penalty).backward();
    bool right = true;
    for (const at::Tensor& parameter : model.parameters())
      right = right && at::equal(parameter.grad(), 2 * parameter);
    rank.observe("right", right);
  });
  expect_on_all_ranks(run, "right", true);
}

// Lets other ranks go ahead: so many times, but not for long on a machine that does much else.
void give_way(int times) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
  for (int i = 0; i < times && std::chrono::steady_clock::now() < end; ++i)
    sched_yield();
}

// Other ranks read the shards while they compute; ranks after the first let all others go ahead.
struct CheckingBlock : LayerBlock {
  at::Tensor forward(at::Tensor x) override {
    give_way(yields);
    sees_only_expected = sees_only_expected && linear->weight.eq(expected).all().item<bool>();
    return LayerBlock::forward(x);
  }
  int yields{}, expected{};
  bool sees_only_expected{true};
};

MULTI_RANK_TEST(TorchOptim, may_write_when_a_call_without_backward_has_returned) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    RowOf<CheckingBlock> net(4);
    for (const auto& block : net.blocks)
      block->yields = rank.rank() * 500;
    FullyShardedDataParallel model(net, rank.communicator(),
                                   {.wrap = wrap_by_type("CheckingBlock"), .limit = 4});
    const at::NoGradGuard no_grad;
    bool right = true;
    for (int round = 1; round <= 20; ++round) {
      for (const at::Tensor& parameter : model.parameters())
        at::Tensor(parameter).fill_(round);
      for (const auto& block : net.blocks)
        block->expected = round;
      net(at::zeros({1, 7}));
    }
    for (const auto& block : net.blocks)
      right = right && block->sees_only_expected;
    rank.observe("right", right);
  });
  expect_on_all_ranks(run, "right", true);
}

// In backward too. Its output's gradient comes late, so it is gathered long after that was issued.
struct LateBlock : LayerBlock {
  at::Tensor forward(at::Tensor x) override {
    const at::Tensor inside = linear(x);
    inside.register_hook([this](const at::Tensor&) {
      sees_only_expected = sees_only_expected && linear->weight.eq(expected).all().item<bool>();
    });
    const at::Tensor output = x + inside.tanh();
    output.register_hook([this](const at::Tensor&) { give_way(yields); });
    return output;
  }
  int yields{}, expected{};
  bool sees_only_expected{true};
};

// All parameters are frozen, so no reduction makes the ranks wait for one another.
MULTI_RANK_TEST(TorchOptim, may_write_when_backward_has_returned) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    torch::manual_seed(1);
    BlockNet net(0);
    const auto late = net.register_module("late", std::make_shared<LateBlock>());
    const auto last = net.register_module("last", std::make_shared<LayerBlock>());
    net.blocks = {late, last};
    late->yields = rank.rank() * 500;
    for (const at::Tensor& parameter : net.parameters())
      parameter.set_requires_grad(false);
    FullyShardedDataParallel model(net, rank.communicator(), {.limit = 4});
    for (int round = 1; round <= 20; ++round) {
      for (const at::Tensor& parameter : model.parameters())
        parameter.detach().fill_(round);
      late->expected = round;
      net(at::zeros({1, 7}).requires_grad_()).sum().backward();
    }
    rank.observe("right", late->sees_only_expected);
  });
  expect_on_all_ranks(run, "right", true);
}

MULTI_RANK_TEST(TorchOptim, may_write_when_a_scope_of_full_parameters_has_ended) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto net = block_net(6);
    FullyShardedDataParallel model(*net, rank.communicator());
    bool right = true;
    for (int round = 1; round <= 100; ++round) {
      for (const at::Tensor& parameter : model.parameters())
        parameter.detach().fill_(round);
      const auto compare = [&] {
        for (const at::Tensor& parameter : net->parameters())
          right = right && parameter.eq(round).all().item<bool>();
      };
      model.summon_full_params(compare, {.writeback = false});
    }
    rank.observe("right", right);
  });
  expect_on_all_ranks(run, "right", true);
}

MULTI_RANK_TEST(TorchOptim, clips_by_the_norm_of_all_ranks) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    const auto parameters = model.parameters();
    (*net)(batch_part(0, 1, 0, {5, 7})).sum().backward();  // the same on every rank
    rank.observe("norm", model.clip_grad_norm_(0.5));
    rank.observe("norm after", std::abs(model.clip_grad_norm_(0.5) - 0.5) < 1e-5);
    rank.observe("largest", model.clip_grad_norm_(100, std::numeric_limits<double>::infinity()));
    rank.observe("norm that is small enough", std::abs(model.clip_grad_norm_(100) - 0.5) < 1e-5);
    const auto other = block_net();
    FullyShardedDataParallel unasked(*other, rank.communicator());  // for its parameters()
    (*other)(batch_part(0, 1, 0, {5, 7})).sum().backward();
    rank.observe("unasked norm", unasked.clip_grad_norm_(0.5));
    rank.observe("unasked norm after", std::abs(unasked.clip_grad_norm_(0.5) - 0.5) < 1e-5);
  });
  const RankRun one = run_oracle([](TestRank& rank) {
    const auto net = block_net();
    (*net)(batch_part(0, 1, 0, {5, 7})).sum().backward();
    double squares = 0, largest = 0;
    for (const at::Tensor& parameter : net->parameters())
      squares += parameter.grad().to(at::kDouble).square().sum().item<double>();
    const double scale = 0.5 / std::sqrt(squares);
    for (const at::Tensor& parameter : net->parameters())
      largest = std::max(largest, scale * parameter.grad().abs().max().item<double>());
    rank.observe("norm", std::sqrt(squares));
    rank.observe("largest", largest);
  });
  expect_same_on_all_ranks(run, "norm");
  expect_on_all_ranks(run, "norm after", true);
  expect_on_all_ranks(run, "unasked norm", run.at(0, "norm"));
  expect_on_all_ranks(run, "unasked norm after", true);
  expect_on_all_ranks(run, "norm that is small enough", true);
  EXPECT_NEAR(run.at(0, "norm").get<double>(), one.at(0, "norm").get<double>(), 1e-4);
  EXPECT_NEAR(run.at(0, "largest").get<double>(), one.at(0, "largest").get<double>(), 1e-4);
}

// Each group has a rate of its own, which changes at every step, and a value at which it is cut.
MULTI_RANK_TEST(TorchOptim, rates_of_groups_and_cut_gradients_are_those_of_one_process) {
  struct Cutting : torch::optim::SGD {
    using SGD::SGD;
    at::Tensor step(LossClosure closure) override {
      for (size_t group = 0; group < param_groups().size(); ++group) {
        torch::nn::utils::clip_grad_value_(param_groups()[group].params(), 0.01);
        param_groups()[group].options().set_lr(0.1 / static_cast<double>(1 + group + steps));
      }
      ++steps;
      return SGD::step(std::move(closure));
    }
    int steps{};
  };
  expect_equal_to_one_process(
      world_size(), training_with([](std::vector<at::Tensor> parameters) {
        const auto third = parameters.begin() + 3;
        std::vector<torch::optim::OptimizerParamGroup> groups;
        groups.emplace_back(std::vector<at::Tensor>(parameters.begin(), third));
        groups.emplace_back(std::vector<at::Tensor>(third, parameters.end()));
        return std::make_unique<Cutting>(groups, torch::optim::SGDOptions(0.1).momentum(0.9));
      }));
}

}  // namespace
}  // namespace fsdp
