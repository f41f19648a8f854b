#include <optim/p_norm.h>

#include <common/expect_text.h>
#include <library/infinity.h>
#include <library/models.h>
#include <library/one_process.h>

#include <utility>

// Tests norms of each parameter and gradient, checks for NaN and infinity, and programs that use
// both.
namespace fsdp {
namespace {

// The functions by which a training loop gets norms from a model. The model is on ranks or in one
// process.
struct ModelNumbers {
  std::function<Norms(double)> param_norms, grad_norms;
  std::function<bool()> gradients_are_finite;
};

template <class Model>
ModelNumbers numbers_of(Model& model) {
  return {[&](double norm_type) { return model.param_norms(norm_type); },
          [&](double norm_type) { return model.grad_norms(norm_type); },
          [&] { return model.gradients_are_finite(); }};
}

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

ModelNumbers numbers_in_one_process(const NamedTensors& named) {
  const auto norms = [named](double norm_type, bool of_gradients) {
    Norms norms;
    for (const auto& [name, parameter] : named) {
      const at::Tensor tensor = of_gradients ? parameter.grad() : parameter.detach();
      if (tensor.defined()) norms.insert(name, p_norm({tensor}, norm_type));
    }
    return norms;
  };
  return {[=](double norm_type) { return norms(norm_type, false); },
          [=](double norm_type) { return norms(norm_type, true); },
          [=] {
            for (const auto& [name, parameter] : named)
              if (parameter.grad().defined() && !parameter.grad().isfinite().all().item<bool>())
                return false;
            return true;
          }};
}

// A user's training loop, with the code that it runs between backward() and step().
struct NormProgram {
  std::string name;
  std::function<void(const ModelNumbers& numbers, const NamedTensors& parameters)> before_step;
  // Says whether the training loop also runs the second step, whose gradients are not finite. If
  // false, the training loop skips this step.
  bool guards{};
};

void lars(const ModelNumbers& numbers, const NamedTensors& parameters) {
  const Norms of_parameters = numbers.param_norms(2), of_gradients = numbers.grad_norms(2);
  for (const auto& [name, parameter] : parameters)
    if (of_gradients[name] > 0) parameter.grad().mul_(of_parameters[name] / of_gradients[name]);
}

void group_lasso(const ModelNumbers& numbers, const NamedTensors& parameters) {
  const Norms norms = numbers.param_norms(2);
  for (const auto& [name, parameter] : parameters)
    if (norms[name] > 0) parameter.grad().add_(parameter.detach(), 0.1 / norms[name]);
}

void max_norm(const ModelNumbers& numbers, const NamedTensors& parameters) {
  const Norms norms = numbers.param_norms(kInfinity);
  for (const auto& [name, parameter] : parameters)
    if (norms[name] > 0.3) parameter.detach().mul_(0.3 / norms[name]);
}

void renormalise(const ModelNumbers& numbers, const NamedTensors& parameters) {
  const Norms norms = numbers.param_norms(3);
  for (const auto& [name, parameter] : parameters)
    parameter.detach().div_(norms[name]);
}

void no_change(const ModelNumbers&, const NamedTensors&) {}

const std::vector<NormProgram> kNormPrograms{{"LARS", lars},
                                             {"a group lasso", group_lasso},
                                             {"a largest norm", max_norm},
                                             {"norms of one", renormalise},
                                             {"a guard", no_change, /*guards=*/true}};

// Returns mean_square() of microbatch `part` of `parts`, but an infinite loss for the last
// microbatch of the second step.
at::Tensor loss_of_part(Module& net, int part, int parts, int step) {
  const at::Tensor loss = mean_square(net, part, parts, step);
  return step == 1 && part == parts - 1 ? loss * kInfinity : loss;
}

void run_program(TestRank& rank, const NormProgram& program, const ModelNumbers& numbers,
                 const NamedTensors& parameters, const std::function<void(int step)>& backward) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, parameter] : parameters)
    tensors.push_back(parameter);
  const auto optimizer = momentum(tensors);
  for (int step = 0; step < kSteps; ++step) {
    if (step == 1 && !program.guards) continue;
    backward(step);
    {
      const at::NoGradGuard no_grad;
      program.before_step(numbers, parameters);
    }
    const bool finite = numbers.gradients_are_finite();
    rank.observe(program.name + ", finite in step " + std::to_string(step), finite);
    if (finite) optimizer->step();
    optimizer->zero_grad();
  }
}

template <template <class> class Parallel>
void run_parallel(TestRank& rank, const std::shared_ptr<Communicator>& comm,
                  const NormProgram& program) {
  const auto net = block_net();
  Parallel<BlockNet> model(*net, comm);
  NamedTensors parameters;
  for (const auto& parameter : model.named_parameters())
    parameters.emplace_back(parameter.key(), parameter.value());
  run_program(rank, program, numbers_of(model), parameters, [&](int step) {
    loss_of_part(*net, comm->global_rank(), rank.world_size(), step).backward();
  });
  for (const auto& entry : model.state_dict())
    rank.observe(program.name + ", " + entry.key(), entry.value());
}

void run_in_one_process(TestRank& rank, const NormProgram& program, int world_size) {
  const auto net = block_net();
  NamedTensors parameters;
  std::vector<at::Tensor> tensors;
  for (const auto& [name, parameter] : distinct_parameters(*net)) {
    parameters.emplace_back(name, parameter);
    tensors.push_back(parameter);
  }
  run_program(rank, program, numbers_in_one_process(parameters), parameters, [&](int step) {
    backward_of_parts(tensors, world_size,
                      [&](int part) { return loss_of_part(*net, part, world_size, step); });
  });
  for (const auto& [name, parameter] : parameters)
    rank.observe(program.name + ", " + name, parameter.detach());
}

MULTI_RANK_SUITE(ModelNorm);

MULTI_RANK_TEST(ModelNorm, training_loops_that_use_norms_end_with_the_bits_of_one_process) {
  const RankRun expected = run_oracle([&](TestRank& rank) {
    for (const NormProgram& program : kNormPrograms)
      run_in_one_process(rank, program, world_size());
  });
  const RankRun sharded = run_ranks(world_size(), [](TestRank& rank) {
    for (const NormProgram& program : kNormPrograms)
      run_parallel<FullyShardedDataParallel>(rank, rank.communicator(), program);
  });
  expect_as(sharded, expected);
  const RankRun replicated = run_ranks(world_size(), [](TestRank& rank) {
    for (const NormProgram& program : kNormPrograms)
      run_parallel<DistributedDataParallel>(rank, rank.communicator(), program);
  });
  expect_as(replicated, expected);
}

// Observes the norms of all parameters and gradients. Some parameters of `net` have no elements, or
// have elements on only one rank.
template <class Model>
void observe_norms(TestRank& rank, TinyNet& net, Model& model, int part, int parts) {
  mean_square(net, part, parts, 0).backward();
  for (const double norm_type : {0.5, 1.0, 2.0, 3.0, kInfinity})
    for (const auto& [kind, norms] : {std::pair("parameter", model.param_norms(norm_type)),
                                      std::pair("gradient", model.grad_norms(norm_type))})
      for (const auto& norm : norms)
        rank.observe(std::string(kind) + " " + norm.key() + " " + std::to_string(norm_type),
                     norm.value());
}

MULTI_RANK_TEST(ModelNorm,
                param_norms_and_grad_norms_have_the_bits_of_the_norms_of_the_whole_tensors) {
  const int parts = world_size();
  const RankRun expected = run_oracle([&](TestRank& rank) {
    torch::manual_seed(1);
    TinyNet net;
    NamedTensors named;
    std::vector<at::Tensor> tensors;
    for (const auto& [name, parameter] : distinct_parameters(net)) {
      named.emplace_back(name, parameter);
      tensors.push_back(parameter);
    }
    backward_of_parts(tensors, parts, [&](int part) { return mean_square(net, part, parts, 0); });
    for (const at::Tensor& parameter : tensors)
      if (!parameter.grad().defined()) parameter.mutable_grad() = at::zeros_like(parameter);
    const ModelNumbers numbers = numbers_in_one_process(named);
    for (const double norm_type : {0.5, 1.0, 2.0, 3.0, kInfinity})
      for (const auto& [name, parameter] : named) {
        const std::string rest = " " + name + " " + std::to_string(norm_type);
        rank.observe("parameter" + rest, numbers.param_norms(norm_type)[name]);
        rank.observe("gradient" + rest, numbers.grad_norms(norm_type)[name]);
      }
  });
  for (int shards = 1; shards <= parts; ++shards) {
    if (parts % shards != 0) continue;
    expect_as(run_ranks(parts,
                        [&](TestRank& rank) {
                          torch::manual_seed(1);
                          TinyNet net;
                          FullyShardedDataParallel model(net, rank.hybrid(shards));
                          model.parameters();
                          observe_norms(rank, net, model, rank.rank(), parts);
                        }),
              expected);
  }
  expect_as(run_ranks(parts,
                      [&](TestRank& rank) {
                        torch::manual_seed(1);
                        TinyNet net;
                        DistributedDataParallel model(net, rank.communicator());
                        observe_norms(rank, net, model, rank.rank(), parts);
                      }),
            expected);
}

MULTI_RANK_TEST(ModelNorm,
                grad_norms_leaves_out_parameters_without_gradient_and_an_invalid_norm_type_throws) {
  in_each_strategy(world_size(), [](TestRank& rank, const std::shared_ptr<Communicator>& comm) {
    const auto net = block_net(), other = block_net();
    net->blocks[0]->linear->weight.set_requires_grad(false);
    other->blocks[0]->linear->weight.set_requires_grad(false);
    FullyShardedDataParallel sharded(*net, comm);
    DistributedDataParallel replicated(*other, comm);
    const auto expect = [&](auto& model, Module& module) {
      EXPECT_EQ(model.grad_norms().size(), 0U);
      EXPECT_EQ(model.param_norms().size(), 7U);
      loss_of(module, rank).backward();
      EXPECT_EQ(model.grad_norms().size(), 6U);
      EXPECT_FALSE(model.grad_norms().contains("b0.linear.weight"));
      EXPECT_THROW(model.param_norms(0), std::invalid_argument);
      EXPECT_THROW(model.grad_norms(-1), std::invalid_argument);
    };
    expect(sharded, *net);
    expect(replicated, *other);
    // parameters() moves the gradients from the units to leaves. The norms must be the same before
    // and after.
    const Norms before = sharded.grad_norms();
    sharded.parameters();
    const Norms after = sharded.grad_norms();
    EXPECT_EQ(before.values(), after.values());
    EXPECT_EQ(after.values(), replicated.grad_norms().values());
  });
}

// Changes the last element of this rank's part of a gradient.
void spoil(const at::Tensor& gradient, double value) {
  const at::NoGradGuard no_grad;
  this_ranks_part(gradient).flatten()[-1].fill_(value);
}

MULTI_RANK_TEST(ModelNorm, gradients_are_finite_is_false_if_any_rank_has_nan_or_infinity) {
  in_each_strategy(world_size(), [](TestRank& rank, const std::shared_ptr<Communicator>& comm) {
    const bool spoils =
        // Rank 1 changes the gradient; if there is only one rank, rank 0 does. The rank must own
        // elements of the weight.
        rank.rank() == std::min(1, rank.world_size() - 1);
    const auto expect = [&](auto& model, Module& net) {
      EXPECT_TRUE(model.gradients_are_finite());
      for (const double value : {std::nan(""), kInfinity, -kInfinity}) {
        loss_of(net, rank).backward();
        EXPECT_TRUE(model.gradients_are_finite());
        if (spoils) spoil(model.named_parameters()["b0.linear.weight"].grad(), value);
        EXPECT_FALSE(model.gradients_are_finite());
        model.zero_grad();
        EXPECT_TRUE(model.gradients_are_finite());
      }
    };
    const auto net = block_net(), other = block_net();
    FullyShardedDataParallel sharded(*net, comm);
    DistributedDataParallel replicated(*other, comm);
    expect(sharded, *net);
    expect(replicated, *other);
  });
}

MULTI_RANK_TEST(ModelNorm, gradients_are_finite_includes_ignored_modules_and_grad_norms_does_not) {
  in_each_strategy(world_size(), [](TestRank& rank, const std::shared_ptr<Communicator>& comm) {
    const auto net = buffered_block();
    WarningsOf warnings;
    FullyShardedDataParallel model(*net, comm, {.wrap = wrap_none(), .ignored = {net->rest.get()}});
    loss_of(*net, rank).backward();
    at::Tensor& ignored = net->rest->linear->weight.mutable_grad();
    ignored = at::ones({7, 7});
    EXPECT_TRUE(model.gradients_are_finite());
    if (rank.rank() == 0) ignored[3][3] = std::nan("");
    EXPECT_FALSE(model.gradients_are_finite());
    EXPECT_EQ(model.grad_norms().size(), 2U);
  });
}

MULTI_RANK_TEST(ModelNorm, grad_norms_and_gradients_are_finite_throw_for_unreduced_gradients) {
  run_ranks(world_size(), [](TestRank& rank) {
    ShardedNet sharded(rank);
    const auto other = block_net();
    DistributedDataParallel replicated(*other, rank.communicator());
    const auto expect = [&](auto& model, Module& net) {
      {
        const auto no_sync = model.no_sync();
        loss_of(net, rank).backward();
      }
      EXPECT_CONTAINS(error_of([&] { model.gradients_are_finite(); }), "have not been reduced");
      EXPECT_CONTAINS(error_of([&] { model.grad_norms(); }), "have not been reduced");
      EXPECT_EQ(model.param_norms().size(), 7U);
      loss_of(net, rank).backward();
      EXPECT_TRUE(model.gradients_are_finite());
    };
    expect(sharded.model, *sharded.net);
    expect(replicated, *other);
  });
}

}  // namespace
}  // namespace fsdp
