#include <nn/gradient_hook.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/nn/utils/convert_parameters.h>
#include <torch/optim/lbfgs.h>

#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

// A parameter of the module and what model.parameters() has of it are one parameter with one value
// and one gradient, whoever changes it and by what means.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(OneGradient);

// Ways in which users drop gradients.
const std::vector<std::pair<std::string, std::function<void(ShardedNet&)>>> kDrops{
    {"optimizer.zero_grad()", [](ShardedNet& sharded) { sharded.optimizer->zero_grad(); }},
    {"net.zero_grad()", [](ShardedNet& sharded) { sharded.net->zero_grad(); }},
    {"model.zero_grad()", [](ShardedNet& sharded) { sharded.model.zero_grad(); }},
    {"grad().reset()",
     [](ShardedNet& sharded) {
       for (at::Tensor& parameter : sharded.net->parameters())
         parameter.mutable_grad().reset();
     }},
};

// Passes that leave gradients: reduced, waiting, both, or lost in an exception.
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
const std::vector<std::function<void(ShardedNet&)>> kPasses{
    [](ShardedNet& sharded) { pass(sharded, 5); },
    [](ShardedNet& sharded) { pass_in_no_sync(sharded, 5); },
    [](ShardedNet& sharded) { pass(sharded, 5), pass_in_no_sync(sharded, 6); },
    [](ShardedNet& sharded) { pass_in_no_sync(sharded, 5), pass(sharded, 6); },
    [](ShardedNet& sharded) { pass_that_throws(sharded, 5); },
    [](ShardedNet& sharded) { pass_in_no_sync(sharded, 5), pass_that_throws(sharded, 6); },
};

MULTI_RANK_TEST(OneGradient, is_dropped_whole_by_each_way_to_drop_it) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    ShardedNet plain(rank, momentum);
    plain.step(0);
    plain.step(1);
    std::string wrong;
    for (const auto& [name, drop] : kDrops) {
      for (size_t i = 0; i < kPasses.size(); ++i) {
        ShardedNet sharded(rank, momentum);
        for (int number = 0; number < 2; ++number) {
          kPasses[i](sharded);
          drop(sharded);
          sharded.optimizer->step();  // over no gradient
          sharded.step(number);
        }
        if (!at::equal(sharded.all_parameters(), plain.all_parameters()))
          wrong += name + " after passes " + std::to_string(i) + "; ";
      }
    }
    rank.observe("wrong", wrong);
  });
  expect_on_all_ranks(run, "wrong", "");
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
    for (const auto& [passes, cure] :
         std::vector<std::pair<size_t, std::string>>{{1, "outside of no_sync()"},
                                                     {2, "outside of no_sync()"},
                                                     {4, "zero_grad()"},
                                                     {5, "zero_grad()"}}) {
      ShardedNet sharded(rank, momentum);
      const at::Tensor before = sharded.all_parameters();
      kPasses[passes](sharded);
      EXPECT_CONTAINS(error_of([&] { sharded.optimizer->step(); }), cure);
      EXPECT_CONTAINS(error_of([&] { sharded.optimizer->zero_grad(false); }), cure);
      EXPECT_CONTAINS(error_of([&] { sharded.net->zero_grad(false); }), "model.parameters()");
      EXPECT_CONTAINS(error_of([&] { sharded.model.clip_grad_norm_(1); }), cure);
      rank.observe(std::to_string(passes), at::equal(before, sharded.all_parameters()));
    }
  });
  for (const char* passes : {"1", "2", "4", "5"})
    expect_on_all_ranks(run, passes, true);
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

// As of an input, which leaves no gradient of a parameter in one process either.
MULTI_RANK_TEST(OneGradient, is_not_made_by_autograd_grad_of_an_input) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    ShardedNet plain(rank, momentum), sharded(rank, momentum);
    for (int number = 0; number < 3; ++number) {
      plain.step(number);
      sharded.step(number);
      const at::Tensor x = at::ones({2, 7}).requires_grad_();
      torch::autograd::grad({(*sharded.net)(x).sum()}, {x});
      sharded.optimizer->step();  // over no gradient, though it has momentum
    }
    rank.observe("equal", at::equal(plain.all_parameters(), sharded.all_parameters()));
  });
  expect_on_all_ranks(run, "equal", true);
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

std::string text_of(bool reshard, bool with_gradients) {
  return std::string(reshard ? "" : ", not resharded") + (with_gradients ? ", with gradients" : "");
}

// After each kind of call that leaves units gathered: with and without gradients, whatever .limit.
MULTI_RANK_TEST(OneValue, is_read_by_the_next_call_however_it_was_changed) {
  const RankRun expected = run_oracle([](TestRank& rank) {
    for (const auto& [name, change] : kChanges) {
      const auto net = block_net();
      const at::NoGradGuard no_grad;
      change(net->parameters());
      rank.observe(name, (*net)(at::ones({2, 7})));
    }
  });
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    for (const bool reshard : {false, true}) {
      for (const bool with_gradients : {false, true}) {
        const std::string of_case = text_of(reshard, with_gradients);
        for (const auto& [name, change] : kChanges) {
          ShardedNet sharded(rank, momentum, block_net(), {.reshard_after_forward = reshard});
          const at::AutoGradMode mode(with_gradients);
          (*sharded.net)(at::ones({2, 7}));
          change(sharded.model.parameters());
          rank.observe(name + of_case, (*sharded.net)(at::ones({2, 7})));
        }
      }
    }
  });
  for (const bool reshard : {false, true})
    for (const bool with_gradients : {false, true})
      for (const auto& [name, change] : kChanges)
        expect_on_all_ranks(run, name + text_of(reshard, with_gradients), expected.at(0, name));
}

MULTI_RANK_TEST(OneValue, is_stepped_and_saved_however_it_was_changed) {
  const RankRun expected = run_oracle([&](TestRank& rank) {
    for (const auto& [name, change] : kChanges) {
      const auto net = block_net();
      const auto parameters = net->parameters();
      const auto optimizer = momentum(parameters);
      for (int step = 0; step < 2; ++step) {
        change(parameters);
        backward_of_parts(parameters, world_size(),
                          [&](int part) { return mean_square(*net, part, world_size(), step); });
        optimizer->step();
        optimizer->zero_grad();
      }
      change(parameters);
      rank.observe(name, net->blocks[0]->linear->weight.detach());
    }
  });
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    for (const auto& [name, change] : kChanges) {
      ShardedNet sharded(rank, momentum);
      for (int step = 0; step < 2; ++step) {
        change(sharded.model.parameters());
        sharded.step(step);
      }
      change(sharded.model.parameters());
      rank.observe(name, sharded.model.state_dict().at("b0.linear.weight"));
    }
  });
  for (const auto& [name, change] : kChanges)
    expect_on_all_ranks(run, name, expected.at(0, name));
}

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
