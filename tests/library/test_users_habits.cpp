#include <full_tensor.h>
#include <torch/nn/functional/normalization.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/nn/utils/convert_parameters.h>
#include <torch/serialize.h>

#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <sstream>
#include <utility>

// Tests training programs that compute with the parameters, the gradients and an optimizer's state
// in ways of their own. Each is written as for one process. On ranks it must end with the bits of
// one process, or an error must say what to call instead.
namespace fsdp {
namespace {

using torch::indexing::Slice;

MULTI_RANK_SUITE(UsersHabits);

// The mean of the embeddings of a few tokens passes through two blocks. The head is the embedding.
struct TokenNet : Module {
  at::Tensor forward(at::Tensor x) override {
    const at::Tensor tokens = (x.abs() * 5).clamp_max(10).to(at::kLong);
    return at::linear((*blocks)(embedding(tokens).mean(1)), embedding->weight);
  }
  torch::nn::Embedding embedding = register_module("embedding", torch::nn::Embedding(11, 7));
  std::shared_ptr<RowOf<LayerBlock>> blocks =
      register_module("blocks", std::make_shared<RowOf<LayerBlock>>());
};

struct ConvBlock : Module {
  at::Tensor forward(at::Tensor x) override {
    return norm(conv(x).tanh().transpose(1, 3)).transpose(1, 3);
  }
  torch::nn::Conv2d conv = register_module(
      "conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 3, /*kernel_size=*/3).padding(1)));
  torch::nn::LayerNorm norm =
      register_module("norm", torch::nn::LayerNorm(std::vector<int64_t>{3}));
};

// The model that a program trains.
struct Trained {
  std::function<std::shared_ptr<Module>()> build;
  Loss loss;
};
const Trained kBlocks{built<BlockNet>, mean_square};
const Trained kTokens{built<TokenNet>, mean_square_of({5, 4})};
const Trained kConvolutions{built<RowOf<ConvBlock>>, mean_square_of({2, 3, 4, 4})};

// Gives a training program its model and its gradients, on ranks or in one process.
class User {
 public:
  User(std::shared_ptr<Module> net, torch::OrderedDict<std::string, at::Tensor> named)
      : net(std::move(net)), named(std::move(named)) {}
  virtual ~User() = default;

  // Adds the gradient of the loss of batch `step`, times `factor`, to .grad of each parameter.
  virtual void backward(int step, double factor = 1) = 0;
  // Returns the loss of batch `step`.
  virtual double loss(int step) = 0;
  // Calls `body` while the parameters of `net` are whole.
  virtual void with_whole_parameters(const std::function<void()>& body) = 0;

  std::vector<at::Tensor> parameters() const { return named.values(); }
  at::Tensor parameter(const std::string& name) const { return named[name]; }
  // Computes the gradient of batch `step` in place of earlier gradients.
  void gradient_of(int step, double factor = 1) {
    for (const at::Tensor& p : parameters())
      p.mutable_grad().reset();
    backward(step, factor);
  }
  void descend(double rate) {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& p : parameters())
      if (p.grad().defined()) p.sub_(rate * p.grad());
  }
  // Appends a number to the log, which must have the same bits on ranks and in one process.
  void log(double number) { logged.push_back(number); }
  void log(const at::Tensor& number) { log(number.item<double>()); }

  const std::shared_ptr<Module> net;
  torch::OrderedDict<std::string, at::Tensor> named;
  std::vector<double> logged;
};
using Habit = void (*)(User&);

struct UserOfOneProcess : User {
  UserOfOneProcess(const Trained& trained, std::shared_ptr<Module> of, int microbatches)
      : User(of, torch::OrderedDict<std::string, at::Tensor>()),
        trained(trained),
        microbatches(microbatches) {
    for (const auto& [name, parameter] : distinct_parameters(*of))
      named.insert(name, parameter);
  }
  void backward(int step, double factor) override {
    std::vector<at::Tensor> before;
    for (const at::Tensor& p : parameters())
      before.push_back(std::exchange(p.mutable_grad(), {}));
    backward_of_parts(parameters(), microbatches, [&](int microbatch) {
      return trained.loss(*net, microbatch, microbatches, step) * factor;
    });
    for (size_t i = 0; i < before.size(); ++i) {
      at::Tensor& gradient = parameters()[i].mutable_grad();
      if (before[i].defined()) gradient = gradient.defined() ? before[i].add_(gradient) : before[i];
    }
  }
  double loss(int step) override {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> losses;
    for (int microbatch = 0; microbatch < microbatches; ++microbatch)
      losses.push_back(trained.loss(*net, microbatch, microbatches, step));
    return (sum_as_tree(losses) / microbatches).item<double>();
  }
  void with_whole_parameters(const std::function<void()>& body) override { body(); }

  const Trained& trained;
  int microbatches;
};

struct UserOnRanks : User {
  UserOnRanks(const Trained& trained, FullyShardedDataParallel<Module>& model, TestRank& rank,
              std::shared_ptr<Module> of)
      : User(std::move(of), model.named_parameters()), trained(trained), model(model), rank(rank) {}
  void backward(int step, double factor) override {
    (trained.loss(*net, rank.rank(), rank.world_size(), step) * factor).backward();
  }
  double loss(int step) override {
    const at::NoGradGuard no_grad;
    const at::Tensor own = trained.loss(*net, rank.rank(), rank.world_size(), step).clone();
    rank.communicator()->all_reduce(own, kMetrics).wait();
    return (own / rank.world_size()).item<double>();
  }
  void with_whole_parameters(const std::function<void()>& body) override {
    model.summon_full_params(body);
  }

  const Trained& trained;
  FullyShardedDataParallel<Module>& model;
  TestRank& rank;
};

// Observes the parameters, which `whole` has under their names, and what the program has logged.
void observe(TestRank& rank, const auto& whole, const User& user) {
  for (const auto& entry : whole)
    if (user.named.contains(entry.key()))
      rank.observe(entry.key(), entry.value().detach().contiguous());
  rank.observe("log", at::tensor(user.logged, at::kDouble));
}

RankRun run_in_one_process(int microbatches, const Trained& trained, Habit habit) {
  return run_oracle([&](TestRank& rank) {
    torch::manual_seed(2);
    UserOfOneProcess user(trained, trained.build(), microbatches);
    habit(user);
    observe(rank, user.named, user);
  });
}

// Runs `habit` in one process, and on `world_size` ranks for each way to divide them into replicas.
// Fails unless all end with the same bits.
void expect_as_in_one_process(int world_size, Habit habit, const Trained& trained = kBlocks) {
  const RankRun expected = run_in_one_process(world_size, trained, habit);
  for (int shards = 1; shards <= world_size; ++shards) {
    if (world_size % shards != 0) continue;
    const RankRun run = run_ranks(world_size, [&](TestRank& rank) {
      torch::manual_seed(2);
      const auto net = trained.build();
      FullyShardedDataParallel<Module> model(*net, rank.hybrid(shards));
      UserOnRanks user(trained, model, rank, net);
      habit(user);
      observe(rank, model.state_dict(), user);
    });
    expect_as(run, expected);
  }
}

// Fails unless `habit` ends with the bits of one process if there is one rank, and throws on every
// rank if there are several, with a text that contains `words`.
void expect_refused(int world_size, const std::string& words, Habit habit,
                    const Trained& trained = kBlocks) {
  if (world_size == 1) return expect_as_in_one_process(world_size, habit, trained);
  run_ranks(world_size, [&](TestRank& rank) {
    torch::manual_seed(2);
    const auto net = trained.build();
    FullyShardedDataParallel<Module> model(*net, rank.communicator());
    UserOnRanks user(trained, model, rank, net);
    EXPECT_CONTAINS(error_of([&] { habit(user); }), words);
  });
}
void expect_each_refused(int world_size, const std::vector<std::pair<std::string, Habit>>& habits,
                         const Trained& trained = kBlocks) {
  for (const auto& [words, habit] : habits)
    expect_refused(world_size, words, habit, trained);
}

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors)
    copies.push_back(tensor.detach().clone());
  return copies;
}

void copy_to(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& values) {
  for (size_t i = 0; i < tensors.size(); ++i)
    tensors[i].data().copy_(values[i]);
}

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& p : parameters)
    gradients.push_back(p.grad());
  return gradients;
}

at::Tensor joined(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : tensors)
    flat.push_back(tensor.detach().reshape({-1}));
  return at::cat(flat);
}

torch::optim::AdamWParamState& moments_of(torch::optim::Optimizer& optimizer, const at::Tensor& p) {
  auto& state = *optimizer.state().at(p.unsafeGetTensorImpl());
  return static_cast<torch::optim::AdamWParamState&>(state);
}

MULTI_RANK_TEST(UsersHabits, an_average_of_weights_can_replace_the_weights_in_an_evaluation) {
  expect_as_in_one_process(world_size(), [](User& user) {
    const auto optimizer = adamw(user.parameters());
    const auto average = copies_of(user.parameters());
    for (int step = 0; step < 3; ++step) {
      user.gradient_of(step);
      optimizer->step();
      for (size_t i = 0; i < average.size(); ++i)
        average[i].mul_(0.9).add_(user.parameters()[i].data(), 0.1);
      const auto trained = copies_of(user.parameters());
      copy_to(user.parameters(), average);
      user.log(user.loss(step));
      copy_to(user.parameters(), trained);
    }
  });
}

MULTI_RANK_TEST(UsersHabits, an_average_of_weights_by_kernels_of_lists_equals_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    const auto average = copies_of(user.parameters());
    const at::NoGradGuard no_grad;
    for (int step = 0; step < 3; ++step) {
      {
        const at::AutoGradMode grad(true);
        user.gradient_of(step);
      }
      user.descend(0.1);
      at::_foreach_lerp_(average, user.parameters(), 0.25);
      user.log(at::stack(at::_foreach_norm(average)).norm());
    }
    at::_foreach_copy_(user.parameters(), average);
  });
}

MULTI_RANK_TEST(UsersHabits, averages_of_weights_in_other_dtypes_equal_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    std::vector<at::Tensor> average;
    for (const at::Tensor& p : user.parameters())
      average.push_back(p.detach().to(at::kDouble));
    for (int step = 0; step < 2; ++step) {
      user.gradient_of(step);
      user.descend(0.1);
      for (size_t i = 0; i < average.size(); ++i) {
        const at::Tensor p = user.parameters()[i].detach();
        average[i] = 0.9 * average[i] + 0.1 * p;
        user.log(average[i].sub(p).abs().max());
        user.log((p.to(at::kBFloat16).to(at::kFloat) - p).abs().max());
      }
    }
    copy_to(user.parameters(), average);
  });
}

MULTI_RANK_TEST(UsersHabits, a_stochastic_weight_average_can_be_written_by_vector_to_parameters) {
  expect_as_in_one_process(world_size(), [](User& user) {
    using namespace torch::nn::utils;
    auto mean = copies_of(user.parameters());
    for (int step = 0; step < 3; ++step) {
      user.gradient_of(step);
      user.descend(0.2);
      for (size_t i = 0; i < mean.size(); ++i)
        mean[i] += (user.parameters()[i].detach() - mean[i]) / (step + 2);
    }
    vector_to_parameters(parameters_to_vector(mean), user.parameters());
    user.log(user.loss(3));
  });
}

MULTI_RANK_TEST(UsersHabits, sam_computes_a_second_backward_at_the_perturbed_weights) {
  expect_as_in_one_process(world_size(), [](User& user) {
    const auto optimizer = momentum(user.parameters());
    for (int step = 0; step < 3; ++step) {
      user.gradient_of(step);
      std::vector<at::Tensor> norms;
      for (const at::Tensor& p : user.parameters())
        norms.push_back(p.grad().norm(2));
      const at::Tensor scale = 0.05 / (at::stack(norms).norm() + 1e-12);
      user.log(scale);
      std::vector<at::Tensor> moves;
      for (const at::Tensor& p : user.parameters()) {
        moves.push_back(p.grad() * scale);
        p.data().add_(moves.back());
      }
      user.gradient_of(step);
      for (size_t i = 0; i < moves.size(); ++i)
        user.parameters()[i].data().sub_(moves[i]);
      optimizer->step();
    }
  });
}

MULTI_RANK_TEST(UsersHabits, lookahead_around_adamw_equals_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    const auto fast = adamw(user.parameters());
    const auto slow = copies_of(user.parameters());
    for (int step = 0; step < 4; ++step) {
      user.gradient_of(step);
      fast->step();
      if (step % 2 == 0) continue;
      for (size_t i = 0; i < slow.size(); ++i)
        slow[i].add_(user.parameters()[i].data() - slow[i], 0.5);
      copy_to(user.parameters(), slow);
    }
  });
}

// The pieces of the joined gradient begin at the sizes of this rank's parts.
MULTI_RANK_TEST(UsersHabits, gradients_of_two_tasks_can_be_projected_as_joined_vectors) {
  expect_as_in_one_process(world_size(), [](User& user) {
    for (int step = 0; step < 2; ++step) {
      user.gradient_of(2 * step);
      const at::Tensor first = joined(gradients_of(user.parameters()));
      user.gradient_of(2 * step + 1);
      const at::Tensor second = joined(gradients_of(user.parameters()));
      user.log(at::cosine_similarity(first, second, 0));
      const at::Tensor other = first - first.dot(second) / second.dot(second) * second;
      int64_t begin = 0;
      for (const at::Tensor& p : user.parameters()) {
        p.grad().copy_(other.narrow(0, begin, p.numel()).view_as(p));
        begin += p.numel();
      }
      user.descend(0.1);
    }
  });
}

MULTI_RANK_TEST(UsersHabits, a_penalty_weighted_by_fisher_information_equals_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    user.gradient_of(0);
    std::vector<at::Tensor> fisher;
    for (const at::Tensor& p : user.parameters())
      fisher.push_back(p.grad().detach().clone().pow(2));
    const auto old = copies_of(user.parameters());
    user.descend(0.1);
    for (int step = 1; step < 3; ++step) {
      user.gradient_of(step);
      at::Tensor penalty = at::zeros({1});
      for (size_t i = 0; i < old.size(); ++i)
        penalty = penalty + (fisher[i] * (user.parameters()[i] - old[i]).pow(2)).sum();
      (50 * penalty).backward();
      user.log(penalty);
      user.descend(0.1);
    }
  });
}

MULTI_RANK_TEST(UsersHabits, a_penalty_on_the_distance_from_a_plain_model_equals_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    const auto pretrained = block_net(3, /*seed=*/9);
    user.gradient_of(0);
    at::Tensor penalty = at::zeros({});
    for (const auto& entry : pretrained->named_parameters()) {
      const at::Tensor p = user.parameter(entry.key());
      penalty = penalty + (p - entry.value().detach()).pow(2).mean();
    }
    penalty.backward();
    user.log(penalty);
    user.descend(0.5);
  });
}

MULTI_RANK_TEST(UsersHabits, an_orthogonal_penalty_on_full_tensors_equals_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    for (int step = 0; step < 2; ++step) {
      user.gradient_of(step);
      at::Tensor penalty = at::zeros({});
      for (const at::Tensor& p : user.parameters()) {
        if (p.dim() != 2) continue;
        const at::Tensor w = full_tensor(p);
        penalty = penalty + (at::mm(w, w.t()) - at::eye(w.size(0))).pow(2).sum();
      }
      (0.01 * penalty).backward();
      user.log(penalty);
      user.descend(0.1);
    }
  });
}

// The scale is so large at first that gradients are infinite, and the program skips the step.
MULTI_RANK_TEST(UsersHabits, loss_scaling_by_hand_skips_the_same_steps_as_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    double scale = 3e38;
    for (int step = 0; step < 6; ++step) {
      user.log(scale);
      user.gradient_of(step, scale);
      bool found = false;
      for (const at::Tensor& p : user.parameters()) {
        p.grad().mul_(1 / scale);
        found = at::isinf(p.grad()).any().item<bool>() || found;
        found = !at::isfinite(p.grad().sum()).item<bool>() || found;
      }
      if (found)
        scale /= 1e10;
      else
        user.descend(0.1);
    }
  });
}

MULTI_RANK_TEST(UsersHabits, infinite_elements_of_gradients_can_be_replaced) {
  expect_as_in_one_process(world_size(), [](User& user) {
    user.gradient_of(0);
    const at::Tensor g = user.parameters()[1].grad();
    g.div_(g.sign().clamp_min(0));
    for (const at::Tensor& p : user.parameters()) {
      user.log(at::isnan(p.grad()).any());
      user.log(at::isinf(p.grad()).sum());
      p.grad().nan_to_num_(0, 0, 0);
    }
    user.descend(0.1);
  });
}

MULTI_RANK_TEST(UsersHabits, gradients_accumulate_in_grad_until_a_program_zeroes_them) {
  expect_as_in_one_process(world_size(), [](User& user) {
    for (int step = 0; step < 2; ++step) {
      for (int microbatch = 0; microbatch < 3; ++microbatch)
        user.backward(3 * step + microbatch, 1.0 / 3);
      user.descend(0.1);
      for (const at::Tensor& p : user.parameters())
        if (step == 0)
          p.mutable_grad().detach_().zero_();
        else
          p.grad().data().zero_();
    }
  });
}

MULTI_RANK_TEST(UsersHabits, gradients_accumulated_in_a_map_of_names_can_become_grad) {
  expect_as_in_one_process(world_size(), [](User& user) {
    std::map<std::string, at::Tensor> sums;
    for (int microbatch = 0; microbatch < 3; ++microbatch) {
      user.gradient_of(microbatch);
      for (const auto& entry : user.named) {
        at::Tensor& sum = sums[entry.key()];
        sum = sum.defined() ? sum + entry.value().grad() : entry.value().grad().clone();
      }
    }
    for (const auto& entry : user.named)
      entry.value().mutable_grad() = sums[entry.key()] / 3;
    adamw(user.parameters())->step();
  });
}

MULTI_RANK_TEST(UsersHabits, a_saved_gradient_can_replace_that_of_a_later_backward) {
  expect_as_in_one_process(world_size(), [](User& user) {
    user.gradient_of(0);
    const auto saved = copies_of(gradients_of(user.parameters()));
    user.gradient_of(1);
    for (size_t i = 0; i < saved.size(); ++i) {
      const at::Tensor p = user.parameters()[i];
      user.log(at::cosine_similarity(p.grad().flatten(), saved[i].flatten(), 0));
      p.mutable_grad() = saved[i];
    }
    momentum(user.parameters())->step();
  });
}

MULTI_RANK_TEST(UsersHabits, the_noise_scale_of_gradients_equals_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    std::vector<at::Tensor> sums;
    double small = 0, big = 0;
    for (int microbatch = 0; microbatch < 3; ++microbatch) {
      user.gradient_of(microbatch);
      for (const at::Tensor& g : gradients_of(user.parameters()))
        small += g.pow(2).sum().item<double>() / 3;
      if (sums.empty())
        sums = copies_of(gradients_of(user.parameters()));
      else
        at::_foreach_add_(sums, gradients_of(user.parameters()));
    }
    for (const at::Tensor& sum : sums)
      big += (sum / 3).square().sum().item<double>();
    user.log((small - big) / (3 * big - small));
  });
}

MULTI_RANK_TEST(UsersHabits, variance_reduced_gradients_at_earlier_weights_equal_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    user.backward(0);
    user.backward(1);
    const auto old = copies_of(user.parameters());
    auto mean = copies_of(gradients_of(user.parameters()));
    at::_foreach_div_(mean, 2);
    for (int step = 0; step < 2; ++step) {
      user.gradient_of(step);
      const auto here = copies_of(gradients_of(user.parameters()));
      const auto now = copies_of(user.parameters());
      copy_to(user.parameters(), old);
      user.gradient_of(step);
      copy_to(user.parameters(), now);
      for (size_t i = 0; i < old.size(); ++i) {
        const at::Tensor p = user.parameters()[i];
        p.data().sub_(here[i] - p.grad() + mean[i], 0.1);
      }
    }
  });
}

MULTI_RANK_TEST(UsersHabits, a_snapshot_is_restored_if_the_loss_has_become_worse) {
  expect_as_in_one_process(world_size(), [](User& user) {
    auto best = copies_of(user.parameters());
    double least = user.loss(0);
    for (int step = 0; step < 4; ++step) {
      user.gradient_of(step);
      user.descend(step == 1 ? 5 : 0.1);
      const double loss = user.loss(0);
      user.log(loss);
      if (loss < least) {
        least = loss;
        best = copies_of(user.parameters());
      } else {
        copy_to(user.parameters(), best);
      }
    }
  });
}

MULTI_RANK_TEST(UsersHabits, a_line_search_by_hand_finds_the_rate_of_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    for (int step = 0; step < 2; ++step) {
      user.gradient_of(step);
      double slope = 0;
      for (const at::Tensor& p : user.parameters())
        slope += p.grad().pow(2).sum().item<double>();
      const auto from = copies_of(user.parameters());
      const double before = user.loss(step);
      double rate = 16;
      for (bool found = false; !found && rate > 1e-3;) {
        rate /= 2;
        copy_to(user.parameters(), from);
        user.descend(rate);
        found = user.loss(step) <= before - 0.1 * rate * slope;
      }
      user.log(rate);
    }
  });
}

MULTI_RANK_TEST(UsersHabits, losses_on_the_line_between_two_snapshots_equal_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    using namespace torch::nn::utils;
    const at::Tensor a = parameters_to_vector(user.parameters()).detach().clone();
    for (int step = 0; step < 2; ++step) {
      user.gradient_of(step);
      user.descend(0.3);
    }
    const at::Tensor b = parameters_to_vector(user.parameters()).detach().clone();
    user.log((a - b).norm());
    for (const double place : {0.0, 0.5, 1.5}) {
      vector_to_parameters(at::lerp(a, b, place), user.parameters());
      user.log(user.loss(0));
    }
  });
}

MULTI_RANK_TEST(UsersHabits, the_mean_of_two_trained_models_equals_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    const auto start = copies_of(user.parameters());
    std::vector<at::Tensor> sum;
    for (const at::Tensor& p : user.parameters())
      sum.push_back(at::zeros_like(p));
    for (int model = 0; model < 2; ++model) {
      copy_to(user.parameters(), start);
      const auto optimizer = adamw(user.parameters());
      for (int step = 0; step < 2; ++step) {
        user.gradient_of(2 * model + step);
        optimizer->step();
      }
      for (size_t i = 0; i < sum.size(); ++i)
        sum[i].add_(user.parameters()[i].data());
    }
    at::_foreach_div_(sum, 2);
    copy_to(user.parameters(), sum);
  });
}

MULTI_RANK_TEST(UsersHabits, clipping_by_a_sum_of_squared_norms_equals_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    const auto add_square = [](double sum, const at::Tensor& p) {
      return sum + std::pow(p.grad().data().norm(2).item<double>(), 2);
    };
    for (int step = 0; step < 2; ++step) {
      user.gradient_of(step);
      const auto parameters = user.parameters();
      const double sum = std::accumulate(parameters.begin(), parameters.end(), 0.0, add_square);
      user.log(sum);
      for (const at::Tensor& p : parameters)
        p.grad().data().mul_(std::min(1.0, 0.05 / (std::sqrt(sum) + 1e-6)));
      user.descend(0.5);
    }
  });
}

MULTI_RANK_TEST(UsersHabits, clipping_by_a_factor_for_a_list_of_gradients_equals_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    user.gradient_of(0);
    const auto gradients = gradients_of(user.parameters());
    const at::Tensor norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients, 2)), 2);
    user.log(norm);
    at::_foreach_mul_(gradients, (0.05 / (norm + 1e-6)).clamp_max(1));
    user.descend(1);
  });
}

MULTI_RANK_TEST(UsersHabits, clipping_to_a_quantile_of_earlier_norms_equals_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    std::vector<double> norms;
    for (int step = 0; step < 3; ++step) {
      user.gradient_of(step);
      norms.push_back(torch::nn::utils::clip_grad_norm_(user.parameters(), 1e9));
      const at::Tensor limit = at::quantile(at::tensor(norms, at::kDouble), 0.1);
      torch::nn::utils::clip_grad_norm_(user.parameters(), limit.item<double>());
      user.descend(0.5);
    }
  });
}

MULTI_RANK_TEST(UsersHabits, adaptive_clipping_of_filters_of_convolutions_equals_one_process) {
  expect_as_in_one_process(
      world_size(),
      [](User& user) {
        const auto norm_of_filters = [](const at::Tensor& x) {
          return x.dim() == 4 ? x.norm(2, {1, 2, 3}, true) : x.norm(2);
        };
        for (int step = 0; step < 2; ++step) {
          user.gradient_of(step);
          for (const at::Tensor& p : user.parameters()) {
            const at::Tensor most = norm_of_filters(p.detach()).clamp_min(1e-3) * 0.01;
            const at::Tensor norm = norm_of_filters(p.grad());
            const at::Tensor clipped = p.grad() * (most / norm.clamp_min(1e-6));
            p.grad().copy_(at::where(norm > most, clipped, p.grad()));
          }
          user.descend(1);
        }
      },
      kConvolutions);
}

MULTI_RANK_TEST(UsersHabits, centralized_gradients_of_convolutions_equal_one_process) {
  expect_as_in_one_process(
      world_size(),
      [](User& user) {
        for (int step = 0; step < 2; ++step) {
          user.gradient_of(step);
          for (const at::Tensor& p : user.parameters())
            if (p.dim() > 1) p.grad().add_(-p.grad().mean({1, 2, 3}, true));
          user.descend(0.5);
        }
      },
      kConvolutions);
}

MULTI_RANK_TEST(UsersHabits, weights_can_be_pruned_by_a_quantile_of_all_magnitudes) {
  expect_as_in_one_process(world_size(), [](User& user) {
    const at::Tensor least = at::quantile(joined(user.parameters()).abs(), 0.3);
    user.log(least);
    std::vector<at::Tensor> masks;
    for (const at::Tensor& p : user.parameters()) {
      masks.push_back((p.detach().abs() > least).to(p.scalar_type()));
      p.data().mul_(masks.back());
    }
    const auto optimizer = momentum(user.parameters());
    for (int step = 0; step < 3; ++step) {
      user.gradient_of(step);
      for (size_t i = 0; i < masks.size(); ++i)
        user.parameters()[i].grad().mul_(masks[i]);
      optimizer->step();
      for (size_t i = 0; i < masks.size(); ++i)
        user.parameters()[i].data() *= masks[i];
    }
    for (const at::Tensor& p : user.parameters())
      user.log((p != 0).sum());
  });
}

MULTI_RANK_TEST(UsersHabits, the_kth_value_of_gathered_joined_weights_equals_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    const at::Tensor all = full_tensor(joined(user.parameters()).abs());
    const at::Tensor least = std::get<0>(all.kthvalue(all.numel() / 3));
    for (const at::Tensor& p : user.parameters())
      p.data().masked_fill_(p.detach().abs() <= least, 0);
    user.log(all.histc(10).max());
  });
}

MULTI_RANK_TEST(UsersHabits, hooks_that_multiply_gradients_by_masks_equal_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    for (const at::Tensor& p : user.parameters()) {
      const at::Tensor mask = p.detach().abs() > p.detach().abs().mean();
      p.data().masked_fill_(mask.logical_not(), 0);
      p.register_hook([mask](const at::Tensor& gradient) { return gradient * mask; });
    }
    for (int step = 0; step < 2; ++step) {
      user.gradient_of(step);
      user.descend(0.1);
    }
  });
}

// On ranks, a hook gets the mean gradient of all ranks. In one process, a hook would get the
// gradient of each microbatch, so the program changes the mean gradient without a hook.
MULTI_RANK_TEST(UsersHabits, hooks_that_divide_gradients_by_their_norms_equal_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    const auto unit = [](const at::Tensor& gradient) {
      return gradient / (gradient.norm() + 1e-6);
    };
    const bool on_ranks = dynamic_cast<UserOnRanks*>(&user) != nullptr;
    if (on_ranks)
      for (const at::Tensor& p : user.parameters())
        p.register_hook(unit);
    for (int step = 0; step < 2; ++step) {
      user.gradient_of(step);
      if (!on_ranks)
        for (const at::Tensor& p : user.parameters())
          p.mutable_grad() = unit(p.grad());
      user.descend(0.1);
    }
  });
}

MULTI_RANK_TEST(UsersHabits, the_largest_singular_value_is_that_of_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    std::map<std::string, at::Tensor> left_of;
    const at::NoGradGuard no_grad;
    for (int step = 0; step < 3; ++step)
      for (auto& entry : user.named) {
        const at::Tensor& p = entry.value();
        if (p.dim() != 2) continue;
        const at::Tensor w = full_tensor(p);
        at::Tensor& left = left_of[entry.key()];
        if (!left.defined()) left = at::ones({w.size(0)});
        at::Tensor right = at::mv(w.t(), left);
        right = right / right.norm();
        left = at::mv(w, right);
        left = left / left.norm();
        const at::Tensor largest = at::dot(left, at::mv(w, right));
        user.log(largest);
        user.log(at::linalg_matrix_norm(p, 2));
        p.div_(largest.clamp_min(0.5));
      }
  });
}

MULTI_RANK_TEST(UsersHabits, a_proximal_step_and_its_fraction_of_zeros_equal_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    for (int step = 0; step < 2; ++step) {
      user.gradient_of(step);
      user.descend(0.1);
      for (const at::Tensor& p : user.parameters()) {
        p.data().copy_(at::softshrink(p.detach(), 0.05));
        user.log((p == 0).to(at::kFloat).mean());
      }
    }
  });
}

MULTI_RANK_TEST(UsersHabits, chains_of_operators_in_place_on_data_equal_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    for (int step = 0; step < 2; ++step) {
      user.gradient_of(step, -1);
      for (const at::Tensor& p : user.parameters()) {
        p.data() += 0.1 * p.grad().data();
        p.data().mul_(0.99).sub_(p.grad().clone().mul_(0.1).clamp_(-0.01, 0.01)).nan_to_num_();
        p.set_data(p.data() - 0.01 * p.grad().sign());
        p.data().clamp_(-0.2, 0.2);
      }
    }
  });
}

MULTI_RANK_TEST(UsersHabits, loops_over_data_ptr_and_accessor_by_element_equal_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    user.gradient_of(0);
    for (const at::Tensor& p : user.parameters()) {
      auto* w = p.data_ptr<float>();
      const auto* g = p.grad().data_ptr<float>();
      for (int64_t i = 0; i < p.numel(); ++i)
        w[i] -= 0.1F * g[i];
      if (p.dim() != 2) continue;
      auto rows = p.accessor<float, 2>();
      for (int64_t i = 0; i < rows.size(0); ++i)
        for (int64_t j = 0; j < rows.size(1); ++j)
          rows[i][j] *= 0.9F;
    }
  });
}

MULTI_RANK_TEST(UsersHabits, weight_decay_and_rates_by_name_equal_one_process) {
  expect_as_in_one_process(
      world_size(),
      [](User& user) {
        std::map<std::string, std::vector<at::Tensor>> layers;
        for (const auto& entry : user.named)
          layers[entry.key().substr(0, 9)].push_back(entry.value());
        std::vector<torch::optim::OptimizerParamGroup> groups;
        double rate = 0.1;
        for (const auto& [layer, parameters] : layers)
          groups.emplace_back(parameters, std::make_unique<torch::optim::AdamOptions>(rate /= 2));
        torch::optim::Adam optimizer(groups, torch::optim::AdamOptions(0.1));
        for (int step = 0; step < 2; ++step) {
          user.gradient_of(step);
          for (const auto& entry : user.named)
            if (entry.key().find("bias") == std::string::npos) entry.value().data().mul_(0.9);
          optimizer.step();
        }
      },
      kTokens);
}

MULTI_RANK_TEST(UsersHabits, a_group_can_be_added_when_its_parameters_are_unfrozen) {
  expect_as_in_one_process(
      world_size(),
      [](User& user) {
        std::vector<at::Tensor> frozen, trained;
        for (const auto& entry : user.named)
          (entry.key().find("b0") != std::string::npos ? frozen : trained).push_back(entry.value());
        for (const at::Tensor& p : frozen)
          p.set_requires_grad(false);
        torch::optim::SGD optimizer(trained, torch::optim::SGDOptions(0.1).momentum(0.9));
        for (int step = 0; step < 3; ++step) {
          if (step == 1) {
            for (const at::Tensor& p : frozen)
              p.set_requires_grad(true);
            optimizer.add_param_group(torch::optim::OptimizerParamGroup(frozen));
          }
          user.gradient_of(step);
          optimizer.step();
        }
      },
      kTokens);
}

MULTI_RANK_TEST(UsersHabits, rows_of_an_embedding_can_be_frozen_by_masks_in_hooks_or_in_place) {
  expect_as_in_one_process(
      world_size(),
      [](User& user) {
        const at::Tensor p = user.parameter("embedding.weight");
        const at::Tensor rows = (at::arange(11) >= 4).unsqueeze(1);
        p.register_hook([=](const at::Tensor& gradient) { return gradient * rows; });
        const at::Tensor old = p.detach().clone();
        for (int step = 0; step < 3; ++step) {
          user.gradient_of(step);
          p.grad().masked_fill_((at::arange(11) == 10).unsqueeze(1), 0);
          user.log((p.grad() != 0).any(1, true).sum());
          user.descend(0.5);
        }
        p.data().copy_(at::where(at::arange(7) > 5, old, p.data()));
        user.log(at::cosine_similarity(p.detach(), old, 1).min());
        user.log(std::get<1>(p.detach().norm(2, {1}).topk(3)).sum());
      },
      kTokens);
}

MULTI_RANK_TEST(UsersHabits, rows_changed_in_a_full_tensor_can_be_copied_back) {
  expect_as_in_one_process(
      world_size(),
      [](User& user) {
        user.gradient_of(0);
        const at::Tensor g = user.parameter("embedding.weight").grad();
        const at::Tensor whole = full_tensor(g);
        whole.slice(0, 0, 4).zero_();
        whole[10].copy_(whole.mean(0));
        g.copy_(whole);
        user.descend(0.5);
      },
      kTokens);
}

MULTI_RANK_TEST(UsersHabits, lion_with_states_in_a_map_of_names_equals_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    std::map<std::string, at::Tensor> momenta;
    for (const auto& entry : user.named)
      momenta[entry.key()] = torch::zeros(entry.value().sizes());
    for (int step = 0; step < 3; ++step) {
      user.gradient_of(step);
      for (const auto& entry : user.named) {
        const at::Tensor g = entry.value().grad();
        at::Tensor& v = momenta[entry.key()];
        entry.value().data().mul_(0.99).add_((v * 0.9 + g * 0.1).sign_(), -0.01);
        v.lerp_(g, 0.01);
      }
    }
  });
}

MULTI_RANK_TEST(UsersHabits, steps_can_be_masked_by_agreement_and_lose_their_radial_part) {
  expect_as_in_one_process(world_size(), [](User& user) {
    std::vector<at::Tensor> momenta(user.parameters().size());
    for (int step = 0; step < 3; ++step) {
      user.gradient_of(step);
      for (size_t i = 0; i < momenta.size(); ++i) {
        const at::Tensor p = user.parameters()[i].detach();
        const at::Tensor g = user.parameters()[i].grad();
        at::Tensor& v = momenta[i];
        if (!v.defined()) v = at::zeros_like(p);
        v.lerp_(g, 0.1);
        const at::Tensor mask = (v * g > 0).to(v.dtype());
        at::Tensor move = v * mask.div_(mask.mean().clamp_(1e-3));
        if (p.dim() == 2) {
          const at::Tensor unit = p / p.norm(2, {1}, true).add_(1e-8);
          move -= unit * (unit * move).sum(1, true);
        }
        p.sub_(move, 0.5);
      }
    }
  });
}

MULTI_RANK_TEST(UsersHabits, the_size_of_updates_and_moments_in_a_log_equal_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    const auto optimizer = adamw(user.parameters());
    for (int step = 0; step < 2; ++step) {
      const auto before = copies_of(user.parameters());
      user.gradient_of(step);
      optimizer->step();
      for (size_t i = 0; i < before.size(); ++i) {
        const at::Tensor p = user.parameters()[i];
        const auto& moments = moments_of(*optimizer, p);
        user.log(((p.detach() - before[i]).std() / p.detach().std()).log10());
        user.log(moments.exp_avg().abs().mean());
        user.log(moments.exp_avg_sq().sqrt().add(1e-8).reciprocal().mean());
      }
    }
  });
}

MULTI_RANK_TEST(UsersHabits, the_state_of_an_optimizer_can_be_reset_or_restored) {
  expect_as_in_one_process(world_size(), [](User& user) {
    const auto optimizer = adamw(user.parameters());
    user.gradient_of(0);
    optimizer->step();
    std::vector<at::Tensor> first;
    for (const at::Tensor& p : user.parameters())
      first.push_back(moments_of(*optimizer, p).exp_avg().clone());
    for (int step = 1; step < 3; ++step) {
      user.gradient_of(step, 100);
      optimizer->step();
      for (size_t i = 0; i < first.size(); ++i) {
        auto& moments = moments_of(*optimizer, user.parameters()[i]);
        moments.exp_avg().copy_(first[i]);
        moments.exp_avg_sq(torch::zeros_like(moments.exp_avg_sq()));
        moments.step(1);
      }
    }
    user.gradient_of(3);
    optimizer->step();
  });
}

MULTI_RANK_TEST(UsersHabits, noise_with_the_sizes_of_the_whole_parameter_equals_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
    const auto whole = user.net->named_parameters();
    for (int step = 0; step < 2; ++step) {
      user.gradient_of(step);
      for (const auto& entry : user.named) {
        const auto sizes = whole[entry.key()].sizes();
        entry.value().grad().mul_(at::rand(sizes, generator) > 0.5);
        entry.value().data().add_(at::randn(sizes, generator), 0.01);
      }
      user.descend(0.1);
    }
  });
}

MULTI_RANK_TEST(UsersHabits, a_layer_can_be_initialised_again_in_the_middle_of_training) {
  expect_as_in_one_process(world_size(), [](User& user) {
    const auto& blocks = dynamic_cast<BlockNet&>(*user.net).blocks;
    torch::manual_seed(7);
    for (int step = 0; step < 2; ++step) {
      user.gradient_of(step);
      user.descend(0.1);
      user.with_whole_parameters([&] {
        blocks[0]->linear->reset_parameters();
        torch::nn::init::xavier_uniform_(blocks[1]->linear->weight);
        torch::nn::init::orthogonal_(blocks[2]->linear->weight);
        torch::nn::init::zeros_(blocks[2]->linear->bias);
      });
      torch::nn::init::constant_(user.parameter("scale"), 0.5);
    }
  });
}

MULTI_RANK_TEST(UsersHabits, each_rank_can_save_and_load_its_parts_with_torch) {
  expect_as_in_one_process(world_size(), [](User& user) {
    std::stringstream file;
    torch::save(user.parameters(), file);
    user.gradient_of(0);
    user.descend(0.5);
    std::vector<at::Tensor> loaded;
    torch::load(loaded, file);
    copy_to(user.parameters(), copies_of(loaded));
    for (const at::Tensor& p : user.parameters())
      user.log(p.norm());
  });
}

MULTI_RANK_TEST(UsersHabits, a_module_saved_in_summon_full_params_can_be_loaded_into_another) {
  expect_as_in_one_process(world_size(), [](User& user) {
    user.gradient_of(0);
    user.descend(0.1);
    std::stringstream file;
    user.with_whole_parameters([&] { torch::save(user.net, file); });
    std::shared_ptr<Module> other = block_net(3, /*seed=*/9);
    torch::load(other, file);
    for (const at::Tensor& p : other->parameters())
      user.log(p.norm());
    user.gradient_of(1);
    user.descend(0.1);
  });
}

MULTI_RANK_TEST(UsersHabits, a_plain_target_network_can_follow_a_sharded_model) {
  expect_as_in_one_process(world_size(), [](User& user) {
    const auto target = block_net(3, /*seed=*/9);
    for (const auto& entry : target->named_parameters()) {
      const at::Tensor p = user.parameter(entry.key()), t = entry.value().detach();
      user.log((p - t).norm());
      t.lerp_(full_tensor(p).detach(), 0.1);
      user.log(at::allclose(p, t) ? 1 : 0);
    }
    for (const auto& entry : target->named_parameters()) {
      const at::NoGradGuard no_grad;
      at::Tensor p = user.parameter(entry.key());
      p.copy_(entry.value());
      user.log(at::allclose(p, entry.value()) ? 1 : 0);
    }
  });
}

MULTI_RANK_TEST(UsersHabits, many_numbers_of_weights_and_gradients_in_a_log_equal_one_process) {
  expect_as_in_one_process(world_size(), [](User& user) {
    user.gradient_of(0);
    for (const at::Tensor& p : user.parameters())
      for (const at::Tensor& x : {p.detach(), p.grad()}) {
        for (const double edge : {-0.1, 0.0, 0.1})
          user.log((x < edge).sum());
        user.log(x.max() - x.min());
        user.log(x.std(false));
        user.log(x.var(0).sum());
        user.log(x.abs().argmax());
        user.log(x.abs().max().log2());
        user.log(at::linalg_norm(x));
        user.log(x.sum({0}).abs().max());
        user.log(x.logsumexp(0).sum());
        user.log(x.quantile(0.25));
      }
  });
}

MULTI_RANK_TEST(UsersHabits,
                slices_and_rows_of_a_gradient_are_refused_under_the_name_of_the_operator) {
  const std::vector<std::pair<std::string, Habit>> habits{
      {"aten::slice of the gradient of parameter embedding.weight",
       [](User& user) {
         user.gradient_of(0);
         user.parameter("embedding.weight").grad().slice(0, 0, 4).zero_();
       }},
      {"aten::select of the gradient of parameter embedding.weight",
       [](User& user) {
         user.gradient_of(0);
         user.parameter("embedding.weight").grad()[0].zero_();
       }},
      {"aten::index_put_ of the gradient of parameter embedding.weight",
       [](User& user) {
         user.gradient_of(0);
         at::Tensor g = user.parameter("embedding.weight").grad();
         g.index_put_({at::arange(11) < 4}, at::zeros({}));
       }},
      {"aten::index_fill_ of the gradient of parameter embedding.weight", [](User& user) {
         user.gradient_of(0);
         at::Tensor g = user.parameter("embedding.weight").grad();
         g.index_fill_(0, at::arange(4), 0);
       }}};
  expect_each_refused(world_size(), habits, kTokens);
}

MULTI_RANK_TEST(UsersHabits, initialisations_of_a_part_that_need_the_whole_parameter_are_refused) {
  expect_each_refused(
      world_size(),
      {{"parameters are whole in model.summon_full_params()",
        [](User& user) { torch::nn::init::xavier_uniform_(user.parameter("b0.linear.weight")); }},
       {"parameters are whole in model.summon_full_params()",
        [](User& user) { torch::nn::init::kaiming_normal_(user.parameter("b0.linear.weight")); }},
       {"parameters are whole in model.summon_full_params()",
        [](User& user) { torch::nn::init::sparse_(user.parameter("b0.linear.weight"), 0.5); }},
       {"aten::eye of parameter b0.linear.weight",
        [](User& user) { torch::nn::init::eye_(user.parameter("b0.linear.weight")); }}});
  expect_refused(
      world_size(), "aten::select of parameter b0.conv.weight",
      [](User& user) { torch::nn::init::dirac_(user.parameter("b0.conv.weight")); }, kConvolutions);
}

MULTI_RANK_TEST(UsersHabits, matrix_products_of_parts_are_refused_under_the_name_of_the_operator) {
  expect_each_refused(
      world_size(), {{"aten::mm of parameter b0.linear.weight",
                      [](User& user) {
                        const at::Tensor p = user.parameter("b0.linear.weight");
                        user.log((at::mm(p, p.t()) - at::eye(7)).norm());
                      }},
                     {"aten::trace of parameter b0.linear.weight",
                      [](User& user) { user.log(at::trace(user.parameter("b0.linear.weight"))); }},
                     {"full_tensor(", [](User& user) {
                        const at::Tensor p = user.parameter("b0.linear.weight");
                        user.log(at::einsum("ij,kj->ik", {p, p}).norm());
                      }}});
}

MULTI_RANK_TEST(UsersHabits, sorted_values_and_histograms_of_parts_are_refused) {
  expect_each_refused(world_size(),
                      {{"aten::topk of a tensor that was computed from the gradient of parameter",
                        [](User& user) {
                          user.gradient_of(0);
                          const at::Tensor g = user.parameter("b0.linear.weight").grad();
                          user.log(std::get<0>(g.abs().flatten().topk(1)).min());
                        }},
                       {"aten::kthvalue of a tensor that was computed from parameter",
                        [](User& user) {
                          const at::Tensor all = joined(user.parameters()).abs();
                          user.log(std::get<0>(all.kthvalue(all.numel() / 3)));
                        }},
                       {"aten::histc of parameter", [](User& user) {
                          for (const at::Tensor& p : user.parameters())
                            user.log(p.detach().histc(10).max());
                        }}});
}

MULTI_RANK_TEST(UsersHabits, random_numbers_with_the_sizes_of_a_part_are_refused) {
  expect_each_refused(
      world_size(),
      {{"aten::randn_like of the gradient of parameter",
        [](User& user) {
          user.gradient_of(0);
          for (const at::Tensor& g : gradients_of(user.parameters()))
            g.add_(torch::randn_like(g), 0.1);
        }},
       {"aten::bernoulli of a tensor that was computed from parameter", [](User& user) {
          for (const at::Tensor& p : user.parameters())
            p.data().mul_(at::bernoulli(at::full_like(p.detach(), 0.5)));
        }}});
}

MULTI_RANK_TEST(UsersHabits, operators_without_a_rule_for_parts_are_refused) {
  expect_each_refused(
      world_size(),
      {{"aten::mse_loss of parameter",
        [](User& user) {
          for (const at::Tensor& p : user.parameters())
            user.log(at::mse_loss(p, at::zeros_like(p)));
        }},
       {"aten::stack of a tensor that was computed from parameter",
        [](User& user) {
          const at::Tensor p = user.parameter("b0.linear.weight").detach();
          user.log(at::stack({p.clone(), p * 2}).mean(0).norm());
        }},
       {"aten::_amp_foreach_non_finite_check_and_unscale_ of the gradient of parameter",
        [](User& user) {
          user.gradient_of(0, 1024);
          at::Tensor found = at::zeros({1});
          at::_amp_foreach_non_finite_check_and_unscale_(gradients_of(user.parameters()), found,
                                                         at::full({1}, 1.0 / 1024));
          user.log(found);
        }}});
}

MULTI_RANK_TEST(UsersHabits, parts_and_plain_models_that_do_not_fit_each_other_are_refused) {
  expect_each_refused(world_size(),
                      {{"give it tensors that are cut as the part is",
                        [](User& user) {
                          for (const auto& entry : block_net(3, /*seed=*/9)->named_parameters())
                            entry.value().data().copy_(user.parameter(entry.key()).data());
                        }},
                       {"another operand requires a gradient",
                        [](User& user) {
                          for (const auto& entry : block_net(3, /*seed=*/9)->named_parameters())
                            user.log((user.parameter(entry.key()) - entry.value()).norm());
                        }},
                       {"set_data() gave parameter", [](User& user) {
                          for (const auto& entry : block_net(3, /*seed=*/9)->named_parameters())
                            user.parameter(entry.key()).set_data(entry.value().detach().clone());
                          user.log(user.loss(0));
                        }}});
}

MULTI_RANK_TEST(UsersHabits, rows_columns_and_filters_can_be_divided_by_their_norms) {
  using torch::nn::functional::normalize, torch::nn::functional::NormalizeFuncOptions;
  const Habit matrices = [](User& user) {
    for (int step = 0; step < 2; ++step) {
      user.gradient_of(step);
      user.descend(0.1);
      for (const at::Tensor& p : user.parameters()) {
        const int64_t dim = p.dim() == 2 ? step : 0;
        p.data().copy_(normalize(p.detach(), NormalizeFuncOptions().dim(dim)));
      }
    }
  };
  const Habit filters = [](User& user) {
    for (const at::Tensor& p : user.parameters())
      if (p.dim() == 4) p.data().copy_(normalize(p.detach(), NormalizeFuncOptions().dim(1)));
  };
  expect_as_in_one_process(world_size(), matrices);
  expect_as_in_one_process(world_size(), filters, kConvolutions);
}

MULTI_RANK_TEST(UsersHabits, an_orthogonal_initialisation_of_a_part_is_refused) {
  expect_refused(world_size(), "aten::view_as of parameter b0.linear.weight", [](User& user) {
    torch::nn::init::orthogonal_(user.parameter("b0.linear.weight"));
  });
}

MULTI_RANK_TEST(UsersHabits, an_index_of_slices_that_covers_the_part_by_chance_is_refused) {
  const Habit reads = [](User& user) {
    const at::Tensor p = user.parameter("embedding.weight").detach();
    user.log(p.index({Slice(0, 4), Slice()}).norm());
  };
  const Habit writes = [](User& user) {
    user.gradient_of(0);
    at::Tensor g = user.parameter("embedding.weight").grad();
    g.index_put_({Slice(0, 4)}, 0);
    user.descend(0.5);
  };
  expect_refused(world_size(), "of parameter embedding.weight would be", reads, kTokens);
  expect_refused(world_size(), "of the gradient of parameter embedding.weight would be", writes,
                 kTokens);
}

MULTI_RANK_TEST(UsersHabits, the_error_of_rows_outside_the_part_names_the_parameter) {
  const Habit narrow = [](User& user) {
    user.gradient_of(0);
    user.parameter("embedding.weight").grad().narrow(0, 0, 4).zero_();
  };
  expect_refused(world_size(), "aten::narrow of the gradient of parameter embedding.weight", narrow,
                 kTokens);
}

MULTI_RANK_TEST(UsersHabits, dropout_of_whole_filters_of_a_part_is_refused) {
  const Habit drop = [](User& user) {
    const at::Tensor p = user.parameter("b0.conv.weight").detach();
    p.copy_(at::feature_dropout(p, 0.5, true));
  };
  expect_refused(world_size(), "aten::feature_dropout of parameter b0.conv.weight", drop,
                 kConvolutions);
}

MULTI_RANK_TEST(UsersHabits, adding_a_transposed_part_is_refused_on_ranks_without_elements_too) {
  const Habit symmetrize = [](User& user) {
    const at::Tensor p = user.parameter("b0.linear.weight").detach();
    p.copy_(0.5 * (p + p.t()));
  };
  expect_refused(world_size(), "another operand is a part too", symmetrize);
}

}  // namespace
}  // namespace fsdp
