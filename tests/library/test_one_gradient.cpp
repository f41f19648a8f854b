#include <nn/gradient_hook.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/nn/utils/convert_parameters.h>
#include <torch/optim/lbfgs.h>

#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

#include <thread>

// A parameter of the module and what model.parameters() has of it are one parameter with one value
// and one gradient, whoever changes it and by what means.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(OneGradient);

// Passes that leave gradients which a step can't take.
void pass(ShardedNet& sharded, int number) {
  (*sharded.net)(100 * batch_part(sharded.rank.rank(), sharded.rank.world_size(), number, {5, 7}))
      .sum()
      .backward();
}
void pass_in_no_sync(ShardedNet& sharded, int number) {
  const NoSync no_sync = sharded.model.no_sync();
  pass(sharded, number);
}
void pass_that_throws(ShardedNet& sharded, int number) {
  at::Tensor x = batch_part(sharded.rank.rank(), sharded.rank.world_size(), number, {5, 7});
  x.requires_grad_().register_hook([](const at::Tensor&) { throw std::domain_error("broken"); });
  EXPECT_THROW((*sharded.net)(x).sum().backward(), std::exception);
}

MULTI_RANK_TEST(OneGradient, of_passes_before_the_first_call_of_parameters_is_in_its_tensors) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto train = [&](bool asks_first) {
      const auto net = block_net();
      FullyShardedDataParallel model(*net, rank.communicator());
      if (asks_first) model.parameters();
      {
        const NoSync no_sync = model.no_sync();
        loss_of(*net, rank, 0).backward();
      }
      loss_of(*net, rank, 1).backward();
      const auto optimizer = adamw(model.parameters());
      optimizer->step();
      return model.state_dict().at("b0.linear.weight");
    };
    rank.observe("equal", at::equal(train(false), train(true)));
  });
  expect_on_all_ranks(run, "equal", true);
}

// Of no unit, for a step over some of the gradients would be half a step.
MULTI_RANK_TEST(OneGradient, that_is_incomplete_is_refused_by_a_step) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    for (const bool throws : {false, true}) {
      const char* cure = throws ? "zero_grad()" : "outside of no_sync()";
      ShardedNet sharded(rank, momentum);
      const at::Tensor before = sharded.all_parameters();
      pass(sharded, 5);
      throws ? pass_that_throws(sharded, 6) : pass_in_no_sync(sharded, 6);
      EXPECT_CONTAINS(error_of([&] { sharded.optimizer->step(); }), cure);
      EXPECT_CONTAINS(error_of([&] { sharded.optimizer->zero_grad(false); }), cure);
      EXPECT_CONTAINS(error_of([&] { sharded.net->zero_grad(false); }), "model.parameters()");
      EXPECT_CONTAINS(error_of([&] { sharded.model.clip_grad_norm_(1); }), cure);
      rank.observe(throws ? "thrown" : "waiting", at::equal(before, sharded.all_parameters()));
    }
  });
  for (const char* what : {"thrown", "waiting"})
    expect_on_all_ranks(run, what, true);
}

// As a thread of the engine may be the last to hold a pass on a GPU.
MULTI_RANK_TEST(OneGradient, that_was_lost_in_another_thread_is_refused_until_it_is_dropped) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    ShardedNet plain(rank, momentum), sharded(rank, momentum);
    const at::Tensor x = at::ones({2, 7}).requires_grad_();
    x.register_hook([](const at::Tensor&) { throw std::domain_error("broken"); });
    const at::Tensor loss = (*sharded.net)(x).sum();
    std::thread([&] { EXPECT_THROW(loss.backward(), std::exception); }).join();
    EXPECT_CONTAINS(error_of([&] { sharded.optimizer->step(); }), "call zero_grad()");
    sharded.model.zero_grad();
    for (ShardedNet* one : {&plain, &sharded})
      one->step();
    rank.observe("equal", at::equal(plain.all_parameters(), sharded.all_parameters()));
  });
  expect_on_all_ranks(run, "equal", true);
}

MULTI_RANK_TEST(OneGradient, that_was_put_into_the_modules_parameters_is_refused) {
  run_ranks(world_size(), [](TestRank& rank) {
    ShardedNet sharded(rank);
    const auto parameters = sharded.net->parameters();
    EXPECT_CONTAINS(
        error_of([&] { torch::autograd::grad({loss_of(*sharded.net, rank)}, parameters); }),
        "take .grad of model.parameters()");
    for (const at::Tensor& parameter : parameters)
      at::Tensor(parameter).mutable_grad() = at::ones(parameter.sizes());
    EXPECT_CONTAINS(error_of([&] { sharded.optimizer->step(); }), "put those");
    EXPECT_CONTAINS(error_of([&] { loss_of(*sharded.net, rank).backward(); }), "model.zero_grad()");
    sharded.model.zero_grad();
    sharded.step();
  });
}

MULTI_RANK_TEST(OneGradient, passes_through_the_hooks_of_its_leaf) {
  const auto calls = std::make_shared<int>(0);
  Training training{.build = [] { return block_net(); }};
  training.optimizer = [calls](const std::vector<at::Tensor>& parameters) {
    for (const at::Tensor& parameter : parameters) {
      parameter.register_hook([](const at::Tensor& gradient) { return gradient.clamp(-0.1, 0.1); });
      register_post_accumulate_grad_hook(parameter, [calls] { ++*calls; });
    }
    return momentum(parameters);
  };
  // In one process the gradient of all parts is put into .grad, so its hooks are called by hand.
  const RankRun expected = run_oracle([&](TestRank& rank) {
    Training cut = training;
    cut.optimizer = [](const std::vector<at::Tensor>& parameters) {
      struct Cutting : torch::optim::SGD {
        using SGD::SGD;
        at::Tensor step(LossClosure closure) override {
          for (const at::Tensor& parameter : param_groups()[0].params())
            parameter.grad().clamp_(-0.1, 0.1);
          return SGD::step(std::move(closure));
        }
      };
      return std::make_unique<Cutting>(parameters, torch::optim::SGDOptions(0.05).momentum(0.9));
    };
    train_in_one_process(rank, cut, world_size());
  });
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    train_sharded(rank, training);
    rank.observe("calls", *calls);
  });
  expect_on_all_ranks(run, "calls", training.steps * 7);
  expect_parameters_of(expected, run);
}

// With one rank they are those of the whole gradient.
MULTI_RANK_TEST(OneGradient, refuses_norms_and_lbfgs_which_would_see_this_ranks_part_of_it) {
  run_ranks(world_size(), [](TestRank& rank) {
    ShardedNet sharded(rank);
    const auto expect = [&](const std::function<void()>& body) {
      if (rank.world_size() == 1) return body();
      EXPECT_CONTAINS(error_of(body), "model.clip_grad_norm_()");
    };
    const auto parameters = sharded.model.parameters();
    loss_of(*sharded.net, rank).backward();
    for (const double type : {1.0, 2.0, std::numeric_limits<double>::infinity()})
      expect([&] { torch::nn::utils::clip_grad_norm_(parameters, 1.0, type); });
    torch::optim::LBFGS lbfgs(parameters);
    expect([&] { lbfgs.step([&] { return loss_of(*sharded.net, rank); }); });
  });
}

MULTI_RANK_SUITE(OneValue);

// Ways in which users change parameters between steps.
const std::vector<std::pair<std::string, std::function<void(const std::vector<at::Tensor>&)>>>
    kChanges{
        {"data().mul_()",
         [](const std::vector<at::Tensor>& parameters) {
           for (const at::Tensor& parameter : parameters)
             parameter.data().mul_(0.5);
         }},
        {"detach().mul_()",
         [](const std::vector<at::Tensor>& parameters) {
           for (const at::Tensor& parameter : parameters)
             parameter.detach().mul_(0.5);
         }},
        {"set_data()",
         [](const std::vector<at::Tensor>& parameters) {
           for (const at::Tensor& parameter : parameters)
             at::Tensor(parameter).set_data(parameter.detach() * 0.5);
         }},
        {"vector_to_parameters()",
         [](const std::vector<at::Tensor>& parameters) {
           torch::nn::utils::vector_to_parameters(
               torch::nn::utils::parameters_to_vector(parameters) * 0.5, parameters);
         }},
        {"one alone",
         [](const std::vector<at::Tensor>& parameters) { parameters[1].data().mul_(0.5); }},
    };

MULTI_RANK_TEST(OneValue, is_not_written_to_in_two_places_at_once) {
  run_ranks(world_size(), [](TestRank& rank) {
    for (const auto& [name, change] : kChanges) {
      if (name == "one alone") continue;  // may be no element of this rank's
      ShardedNet sharded(rank, momentum, block_net(), {.wrap = wrap_none()});
      const auto write = [&] { change(sharded.model.parameters()); };
      EXPECT_CONTAINS(error_of([&] { sharded.model.summon_full_params(write); }), "outside of it");
    }
  });
}

MULTI_RANK_TEST(OneValue, that_changed_between_forward_and_backward_is_refused) {
  run_ranks(world_size(), [](TestRank& rank) {
    for (const auto& [name, change] : kChanges) {
      if (name == "one alone") continue;  // may be no element of this rank's
      ShardedNet sharded(rank, momentum, block_net(), {.wrap = wrap_none()});
      const at::Tensor loss = loss_of(*sharded.net, rank);
      change(sharded.model.parameters());
      EXPECT_CONTAINS(error_of([&] { loss.backward(); }), "was changed since its forward");
    }
  });
}

}  // namespace
}  // namespace fsdp
