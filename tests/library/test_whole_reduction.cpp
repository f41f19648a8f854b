#include <full_tensor.h>
#include <this_ranks_part.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/nn/utils/convert_parameters.h>
#include <torch/optim/lbfgs.h>

#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

#include <cmath>
#include <functional>
#include <limits>
#include <utility>

// Tests that reductions over the parameters of a sharded model, and over their gradients, are those
// of the whole tensors.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(WholeReduction);

// An update rule: changes the parameter `p`, given its gradient `g` and a buffer `state` that
// belongs to `p`.
using Update = void (*)(at::Tensor p, at::Tensor g, at::Tensor& state);
// An update rule that changes all parameters at once.
using UpdateAll = void (*)(const std::vector<at::Tensor>& parameters);

// An optimizer whose step() calls `rule`. The rule is written as for one process, with whole
// parameters.
template <class Rule>
struct Own : torch::optim::SGD {
  Own(std::vector<at::Tensor> parameters, Rule rule)
      : SGD(std::move(parameters), torch::optim::SGDOptions(0.1)), rule(rule) {}
  at::Tensor step(LossClosure /*closure*/) override {
    const at::NoGradGuard no_grad;
    const std::vector<at::Tensor>& parameters = param_groups()[0].params();
    if constexpr (std::is_invocable_v<Rule, const std::vector<at::Tensor>&>) {
      rule(parameters);
    } else {
      states.resize(parameters.size());
      for (size_t i = 0; i < parameters.size(); ++i) {
        if (!states[i].defined()) states[i] = at::zeros_like(parameters[i]);
        if (parameters[i].grad().defined()) rule(parameters[i], parameters[i].grad(), states[i]);
      }
    }
    return {};
  }
  Rule rule;
  std::vector<at::Tensor> states;
};

template <class Rule>
Training training_of(std::string name, Rule rule) {
  return {.name = std::move(name), .optimizer = [rule](std::vector<at::Tensor> parameters) {
            return std::make_unique<Own<Rule>>(std::move(parameters), rule);
          }};
}

void expect_habits_equal_to_one_process(int world_size,
                                        const std::vector<std::pair<const char*, Update>>& rules) {
  std::vector<Training> trainings;
  for (const auto& [name, rule] : rules)
    trainings.push_back(training_of(name, rule));
  expect_equal_to_one_process(world_size, trainings);
}

MULTI_RANK_TEST(WholeReduction, updates_scaled_by_norms_such_as_lars_and_lamb_equal_one_process) {
  expect_habits_equal_to_one_process(
      world_size(),
      {{"LARS",
        [](at::Tensor p, at::Tensor g, at::Tensor& state) {
          const at::Tensor rate = 0.02 * p.norm() / (g.norm() + 1e-9);
          state.mul_(0.9).add_(g * rate);
          p.sub_(state);
        }},
       {"LAMB",
        [](at::Tensor p, at::Tensor g, at::Tensor& state) {
          state.mul_(0.9).addcmul_(g, g, 0.1);
          const at::Tensor update = g / (state.sqrt() + 1e-6) + 0.01 * p;
          const double trust = p.norm().item<double>() / update.norm().item<double>();
          p.sub_(0.01 * trust * update);
        }},
       {"norms of other types",
        [](at::Tensor p, at::Tensor g, at::Tensor&) {
          p.sub_(0.01 * g / (g.norm(1) + g.abs().max() + at::linalg_vector_norm(g)));
        }},
       {"hypergradient",
        [](at::Tensor p, at::Tensor g, at::Tensor& state) {
          const at::Tensor along = at::dot(g.flatten(), state.flatten());
          state.copy_(g);
          p.sub_((0.05 + 0.1 * along.tanh()) * g);
        }},
       {"cosine of gradient and momentum",
        [](at::Tensor p, at::Tensor g, at::Tensor& state) {
          state.mul_(0.9).add_(g);
          p.sub_(0.05 * (1 + at::cosine_similarity(g.flatten(), state.flatten(), 0)) * g);
        }},
       {"mean magnitude of a sign step",
        [](at::Tensor p, at::Tensor g, at::Tensor&) { p.sub_(0.1 * g.abs().mean() * g.sign()); }},
       {"normalized gradient", [](at::Tensor p, at::Tensor g, at::Tensor&) {
          p.sub_(0.02 * (g - g.mean()) / (g.std() + 1e-3));
        }}});
}

MULTI_RANK_TEST(WholeReduction, updates_that_depend_on_max_min_or_isfinite_equal_one_process) {
  expect_habits_equal_to_one_process(
      world_size(), {{"a step if all is finite",
                      [](at::Tensor p, at::Tensor g, at::Tensor&) {
                        // For a small element of the gradient, the comparison gives false, which
                        // is 0. The division by 0 gives infinity.
                        g = g / (g.abs() > 1e-3);
                        if (g.isfinite().all().item<bool>()) p.sub_(0.1 * g);
                        if (g.isinf().any().item<bool>()) p.mul_(0.9);
                      }},
                     {"a limit of the largest element",
                      [](at::Tensor p, at::Tensor g, at::Tensor&) {
                        p.sub_(0.1 * g);
                        if (p.max().item<double>() > 0.3) p.mul_(0.3 / p.amax());
                        if (p.min().item<double>() < -0.3) p.add_(0.01 * p.amin());
                      }},
                     {"fake quantization",
                      [](at::Tensor p, at::Tensor g, at::Tensor&) {
                        p.sub_(0.1 * g);
                        const at::Tensor scale = p.abs().max() / 127;
                        p.copy_((p / scale).round() * scale);
                      }},
                     {"the larger half of a gradient",
                      [](at::Tensor p, at::Tensor g, at::Tensor&) {
                        p.sub_(0.1 * at::where(g.abs() >= g.abs().median(), g, at::zeros_like(g)));
                      }},
                     {"a quantile",
                      [](at::Tensor p, at::Tensor g, at::Tensor&) {
                        p.sub_(0.1 * g.clamp(at::quantile(g, 0.1), at::quantile(g, 0.9)));
                      }},
                     {"sparsity",
                      [](at::Tensor p, at::Tensor g, at::Tensor&) {
                        g = g * (g > 0);
                        p.sub_(g * (0.1 * g.count_nonzero() / 49.0));
                      }},
                     {"where a copy differs", [](at::Tensor p, at::Tensor g, at::Tensor& state) {
                        if (!at::equal(state, g)) state.copy_(g);
                        if (!at::allclose(state, p)) p.sub_(0.1 * state);
                      }}});
}

// These updates reduce a parameter over one dimension, which gives a plain tensor of the whole
// size. If an operand has the sizes of the whole tensor or of a row of it, the library cuts it as
// it cuts the parameter.
MULTI_RANK_TEST(WholeReduction, updates_that_reduce_rows_or_columns_equal_one_process) {
  expect_habits_equal_to_one_process(
      world_size(), {{"rows of a largest norm",
                      [](at::Tensor p, at::Tensor g, at::Tensor&) {
                        p.sub_(0.1 * g);
                        if (p.dim() == 2)
                          p.mul_((0.5 / (p.norm(2, {1}, true) + 1e-6)).clamp_max(1));
                      }},
                     {"centralized gradients",
                      [](at::Tensor p, at::Tensor g, at::Tensor&) {
                        p.sub_(0.1 * (g.dim() == 2 ? g - g.mean(1, true) : g));
                      }},
                     {"Adafactor",
                      [](at::Tensor p, at::Tensor g, at::Tensor&) {
                        if (g.dim() != 2) return;
                        const at::Tensor rows = g.square().mean(1, true),
                                         columns = g.square().mean(0, true);
                        p.sub_(0.01 * g / (rows * columns / rows.mean() + 1e-6).sqrt());
                      }},
                     {"group lasso",
                      [](at::Tensor p, at::Tensor g, at::Tensor&) {
                        p.sub_(0.1 * g);
                        if (p.dim() == 2)
                          p.mul_((1 - 0.1 / at::linalg_vector_norm(p, 2, {1}, true)).clamp_min(0));
                      }},
                     {"standardized columns",
                      [](at::Tensor p, at::Tensor g, at::Tensor&) {
                        p.sub_(0.1 * g);
                        if (p.dim() == 2)
                          p.copy_((p - p.mean(0, true)) / (p.std(0, true, true) + 0.1));
                      }},
                     {"a mask of the whole tensor",
                      [](at::Tensor p, at::Tensor g, at::Tensor&) {
                        p.sub_(0.1 * g);
                        if (p.dim() == 2) p.mul_(at::ones({7, 7}).tril());
                        if (p.dim() == 2)
                          p.masked_fill_(at::ones({7, 7}).triu(5).to(at::kBool), 0.5);
                      }},
                     {"a factor for each column",
                      [](at::Tensor p, at::Tensor g, at::Tensor&) {
                        if (p.dim() == 2) p.sub_(g * at::arange(7) * 0.01);
                      }},
                     {"a whole matrix", [](at::Tensor p, at::Tensor g, at::Tensor& state) {
                        state.mul_(0.9).add_(g);
                        if (p.dim() != 2) return;
                        at::Tensor x = full_tensor(state);
                        x = x / (x.norm() + 1e-6);
                        for (int i = 0; i < 3; ++i)
                          x = 1.5 * x - 0.5 * at::matmul(at::matmul(x, x.t()), x);
                        p.sub_(0.02 * x);
                      }}});
}

MULTI_RANK_TEST(WholeReduction, updates_that_use_several_reductions_equal_one_process) {
  expect_habits_equal_to_one_process(
      world_size(), {{"a perturbed point (SAM)",
                      [](at::Tensor p, at::Tensor g, at::Tensor&) {
                        const at::Tensor step = 0.05 * g / (g.norm() + 1e-12);
                        p.add_(step);
                        p.sub_(0.1 * (g + 0.1 * p));
                        p.sub_(step);
                      }},
                     {"an estimated distance (D-adaptation)",
                      [](at::Tensor p, at::Tensor g, at::Tensor& state) {
                        state.add_(g);
                        const double along = at::dot(g.flatten(), state.flatten()).item<double>();
                        const double distance = along / (state.abs().sum().item<double>() + 1e-9);
                        p.sub_((0.01 + 0.1 * std::abs(distance)) * g.sign());
                      }},
                     {"a step relative to the root mean square",
                      [](at::Tensor p, at::Tensor g, at::Tensor&) {
                        const at::Tensor size = p.square().mean().sqrt().clamp_min(1e-3);
                        p.sub_(0.05 * size * g / (g.square().mean().sqrt() + 1e-6));
                      }},
                     {"weights of norm one",
                      [](at::Tensor p, at::Tensor g, at::Tensor&) {
                        p.sub_(0.1 * g);
                        p.div_(at::linalg_vector_norm(p) + 1e-9);
                      }},
                     {"a step if gradients agree with their sum",
                      [](at::Tensor p, at::Tensor g, at::Tensor& state) {
                        state.lerp_(g, 0.5);
                        const at::Tensor agree = (g * state > 0).to(at::kFloat).mean();
                        p.sub_(0.1 * agree * state.sign());
                      }},
                     {"noise of the gradient",
                      [](at::Tensor p, at::Tensor g, at::Tensor&) {
                        const auto [variance, mean] = at::var_mean(g);
                        p.sub_(0.1 * g / (1 + variance / (mean.square() + 1e-3)));
                      }},
                     {"adaptive clipping of rows",
                      [](at::Tensor p, at::Tensor g, at::Tensor&) {
                        if (g.dim() != 2) return;
                        const at::Tensor most = 0.1 * p.norm(2, {1}, true).clamp_min(1e-3);
                        const at::Tensor norms = g.norm(2, {1}, true).clamp_min(1e-6);
                        p.sub_(0.5 * g * (most / norms).clamp_max(1));
                      }},
                     {"the largest k elements",
                      [](at::Tensor p, at::Tensor g, at::Tensor&) {
                        const int64_t numel = full_tensor(g).numel();
                        const at::Tensor least =
                            std::get<0>(full_tensor(g).abs().flatten().kthvalue(numel - numel / 3));
                        p.sub_(0.1 * g * (g.abs() >= least));
                      }},
                     {"a soft threshold",
                      [](at::Tensor p, at::Tensor g, at::Tensor&) {
                        p.sub_(0.1 * g);
                        const at::Tensor least = 0.1 * at::quantile(p.abs(), 0.5);
                        p.copy_(p.sign() * (p.abs() - least).clamp_min(0));
                      }},
                     {"distance from an average of weights",
                      [](at::Tensor p, at::Tensor g, at::Tensor& state) {
                        p.sub_(0.1 * g);
                        const double distance = (p - state).norm().item<double>();
                        state.lerp_(p, distance > 0.5 ? 0.5 : 0.1);
                      }},
                     {"decay by the number of dimensions",
                      [](at::Tensor p, at::Tensor g, at::Tensor&) {
                        if (p.dim() > 1) p.mul_(1 - 0.1 * p.abs().amax() / (1 + p.abs().sum()));
                        p.sub_(0.1 * g);
                      }},
                     {"a gradient without its part along the weights",
                      [](at::Tensor p, at::Tensor g, at::Tensor&) {
                        const at::Tensor along =
                            at::dot(g.flatten(), p.flatten()) / (p.square().sum() + 1e-9);
                        p.sub_(0.1 * (g - along * p));
                      }}});
}

struct OneStepOfLbfgs : torch::optim::LBFGS {
  using LBFGS::LBFGS;
  // The training loop has computed the gradients already, so the closure of LBFGS computes nothing.
  at::Tensor step(LossClosure /*closure*/) override {
    return LBFGS::step([] { return at::ones({}); });
  }
};

MULTI_RANK_TEST(WholeReduction, torchs_norms_over_all_parameters_equal_those_of_one_process) {
  const auto clipped = [](double type) {
    return [type](const std::vector<at::Tensor>& parameters) {
      torch::nn::utils::clip_grad_norm_(parameters, 0.01, type);
      for (const at::Tensor& p : parameters)
        at::Tensor(p).sub_(p.grad());
    };
  };
  std::vector<Training> trainings;
  for (const double type : {1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()})
    trainings.push_back(training_of("clip_grad_norm_() of type " + std::to_string(type),
                                    std::function(clipped(type))));
  trainings.push_back(
      training_of("norms of lists", UpdateAll([](const std::vector<at::Tensor>& parameters) {
                    std::vector<at::Tensor> gradients;
                    for (const at::Tensor& p : parameters)
                      gradients.push_back(p.grad());
                    const at::Tensor norm = at::stack(at::_foreach_norm(gradients)).norm();
                    for (const at::Tensor& p : parameters)
                      at::Tensor(p).sub_(0.1 * p.grad() / norm);
                  })));
  trainings.push_back(training_of("norms of what vector_to_parameters() wrote",
                                  UpdateAll([](const std::vector<at::Tensor>& parameters) {
                                    using namespace torch::nn::utils;
                                    vector_to_parameters(parameters_to_vector(parameters) * 0.9,
                                                         parameters);
                                    for (const at::Tensor& p : parameters)
                                      at::Tensor(p).sub_(0.1 * p.grad() * p.norm());
                                  })));
  trainings.push_back({.name = "LBFGS", .optimizer = [](std::vector<at::Tensor> parameters) {
                         return std::make_unique<OneStepOfLbfgs>(
                             std::move(parameters), torch::optim::LBFGSOptions(0.1).max_iter(1));
                       }});
  expect_equal_to_one_process(world_size(), trainings);
}

MULTI_RANK_TEST(WholeReduction, the_norm_of_a_ranks_part_equals_that_of_the_saved_parameter) {
  in_each_strategy(world_size(), [](TestRank& rank, const std::shared_ptr<Communicator>& comm) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, comm);
    loss_of(*net, rank).backward();
    const auto saved = model.state_dict();
    for (const auto& part : model.named_parameters()) {
      EXPECT_TRUE(at::equal(part.value().norm(), saved.at(part.key()).norm())) << part.key();
      EXPECT_TRUE(part.value().grad().isfinite().all().item<bool>()) << part.key();
    }
  });
}

MULTI_RANK_TEST(WholeReduction, after_no_sync_the_norm_of_an_unreduced_gradient_throws) {
  run_ranks(world_size(), [](TestRank& rank) {
    ShardedNet sharded(rank);
    {
      const auto no_sync = sharded.model.no_sync();
      loss_of(*sharded.net, rank).backward();
    }
    const at::Tensor p = sharded.model.parameters().front();
    EXPECT_CONTAINS(error_of([&] { p.grad().norm(); }), "have not been reduced");
    EXPECT_CONTAINS(error_of([&] { p.grad().isfinite().all(); }), "have not been reduced");
  });
}

// The closure returns the mean of the ranks' losses: LBFGS makes decisions from the loss, and every
// rank must decide the same.
MULTI_RANK_TEST(WholeReduction, lbfgs_with_a_line_search_ends_with_the_bits_of_one_process) {
  const int world = world_size();
  const auto search = [](std::vector<at::Tensor> parameters) {
    return std::make_unique<torch::optim::LBFGS>(
        std::move(parameters),
        torch::optim::LBFGSOptions(0.5).max_iter(4).line_search_fn("strong_wolfe"));
  };
  const auto observe = [](TestRank& rank, const std::string& name, const at::Tensor& value) {
    rank.observe(name, value.detach().contiguous());
  };
  const RankRun expected = run_oracle([&](TestRank& rank) {
    const auto net = block_net();
    const std::vector<at::Tensor> parameters = net->parameters();
    const auto optimizer = search(parameters);
    const at::Tensor loss = optimizer->step([&] {
      std::vector<at::Tensor> losses;
      optimizer->zero_grad();
      backward_of_parts(parameters, world, [&](int microbatch) {
        losses.push_back(mean_square(*net, microbatch, world, 0));
        return losses.back();
      });
      const at::NoGradGuard no_grad;
      return sum_as_tree(losses) / world;
    });
    observe(rank, "loss", loss);
    for (const auto& entry : net->named_parameters())
      observe(rank, entry.key(), entry.value());
  });
  const RankRun run = run_ranks(world, [&](TestRank& rank) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    const auto optimizer = search(model.parameters());
    const at::Tensor loss = optimizer->step([&] {
      optimizer->zero_grad();
      const at::Tensor own = loss_of(*net, rank);
      own.backward();
      const at::Tensor sum = own.detach().clone();
      rank.communicator()->all_reduce(sum, kMetrics).wait();
      return sum / rank.world_size();
    });
    observe(rank, "loss", loss);
    for (const auto& entry : model.state_dict())
      observe(rank, entry.key(), entry.value());
  });
  expect_as(run, expected);
}

}  // namespace
}  // namespace fsdp
