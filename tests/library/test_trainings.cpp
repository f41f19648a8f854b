#include <nn/gradient_hook.h>

#include <library/models.h>
#include <library/one_process.h>

// Orders of calls that are no plain loop of steps.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(AnyTraining);

MULTI_RANK_TEST(AnyTraining, may_be_evaluated_between_its_backward_and_its_step) {
  const auto train = [](TestRank& rank, const OptimizerOf& optimizer_of, bool evaluates,
                        bool with_gradients) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    const auto optimizer = optimizer_of(model.parameters());
    for (int step = 0; step < 3; ++step) {
      loss_of(*net, rank, step).backward();
      if (evaluates) {
        const at::AutoGradMode mode(with_gradients);
        loss_of(*net, rank, 7);
      }
      optimizer->step();
      optimizer->zero_grad();
    }
    return model.state_dict().at("scale");
  };
  for (const auto& optimizer : {adamw, momentum}) {
    const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
      rank.observe("without", train(rank, optimizer, false, false));
      rank.observe("evaluated", train(rank, optimizer, true, false));
      rank.observe("forward alone", train(rank, optimizer, true, true));
    });
    expect_on_all_ranks(run, "evaluated", run.at(0, "without"));
    expect_on_all_ranks(run, "forward alone", run.at(0, "without"));
  }
}

MULTI_RANK_TEST(AnyTraining, drops_a_backward_that_broke_off) {
  const auto train = [](TestRank& rank, bool breaks) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    const auto optimizer = momentum(model.parameters());
    for (int step = 0; step < 2; ++step) {
      if (breaks) {
        at::Tensor x = batch_part(rank.rank(), rank.world_size(), 9, {5, 7}).requires_grad_();
        x.register_hook([](const at::Tensor&) { throw std::runtime_error("broken"); });
        EXPECT_THROW((*net)(x).sum().backward(), std::exception);
        optimizer->zero_grad();
      }
      loss_of(*net, rank, step).backward();
      optimizer->step();
      optimizer->zero_grad();
    }
    return model.state_dict().at("b0.linear.weight");
  };
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    rank.observe("without", train(rank, false));
    rank.observe("broken", train(rank, true));
  });
  expect_on_all_ranks(run, "broken", run.at(0, "without"));
}

// Two sharded models, each with an optimizer; the loss of one goes through the other.
template <class Sharded>
void train_gan(Module& maker, Module& judge, const Sharded& backward,
               torch::optim::Optimizer& of_maker, torch::optim::Optimizer& of_judge) {
  for (int step = 0; step < 3; ++step) {
    backward([&](int part, int parts) {
      const at::Tensor made = maker(batch_part(part, parts, step, {5, 7}));
      return judge(made.detach()).mean() - judge(batch_part(part, parts, step + 9, {5, 7})).mean();
    });
    of_judge.step();
    of_judge.zero_grad();
    of_maker.zero_grad();
    backward([&](int part, int parts) {
      return -judge(maker(batch_part(part, parts, step, {5, 7}))).mean();
    });
    of_maker.step();
    of_maker.zero_grad();
    of_judge.zero_grad();
  }
}

MULTI_RANK_TEST(AnyTraining, may_be_two_models_in_one_loss) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto maker = block_net(2, 1), judge = block_net(2, 2);
    FullyShardedDataParallel first(*maker, rank.communicator());
    FullyShardedDataParallel second(*judge, rank.communicator());
    const auto one = adamw(first.parameters()), two = adamw(second.parameters());
    train_gan(
        *maker, *judge, [&](const auto& loss) { loss(rank.rank(), rank.world_size()).backward(); },
        *one, *two);
    rank.observe("maker", first.state_dict().at("b0.linear.weight"));
    rank.observe("judge", second.state_dict().at("b1.linear.weight"));
  });
  const RankRun one_process = run_oracle([&](TestRank& rank) {
    const auto maker = block_net(2, 1), judge = block_net(2, 2);
    std::vector<at::Tensor> all = maker->parameters();
    for (const at::Tensor& parameter : judge->parameters())
      all.push_back(parameter);
    const auto one = adamw(maker->parameters()), two = adamw(judge->parameters());
    const auto backward = [&](const auto& loss) {
      std::vector<std::vector<at::Tensor>> gradients(all.size());
      for (int part = 0; part < world_size(); ++part) {
        loss(part, world_size()).backward();
        for (size_t i = 0; i < all.size(); ++i)
          if (const at::Tensor gradient = std::exchange(all[i].mutable_grad(), {});
              gradient.defined())
            gradients[i].push_back(gradient);
      }
      for (size_t i = 0; i < all.size(); ++i)
        if (!gradients[i].empty())
          all[i].mutable_grad() = sum_as_tree(gradients[i]).view(all[i].sizes()).div(world_size());
    };
    train_gan(*maker, *judge, backward, *one, *two);
    rank.observe("maker", maker->blocks[0]->linear->weight.detach());
    rank.observe("judge", judge->blocks[1]->linear->weight.detach());
  });
  for (const char* model : {"maker", "judge"})
    expect_on_all_ranks(run, model, one_process.at(0, model));
}

// Trains three steps and observes all parameters as `name`. `step` is one step.
using Step = std::function<void(BlockNet& net, torch::optim::Optimizer& optimizer, int number)>;
void observe_training(TestRank& rank, const std::string& name, const Step& step) {
  const auto net = block_net();
  FullyShardedDataParallel model(*net, rank.communicator());
  const auto optimizer = adamw(model.parameters());
  for (int number = 0; number < 3; ++number)
    step(*net, *optimizer, number);
  std::vector<at::Tensor> all;
  for (const auto& entry : model.state_dict())
    all.push_back(entry.value().flatten());
  rank.observe(name, at::cat(all));
}

Step plain_step(TestRank& rank) {
  return [&rank](BlockNet& net, torch::optim::Optimizer& optimizer, int number) {
    loss_of(net, rank, number).backward();
    optimizer.step();
    optimizer.zero_grad();
  };
}

MULTI_RANK_TEST(AnyTraining, may_drop_its_gradients_by_zero_grad_of_the_module) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    observe_training(rank, "plain", plain_step(rank));
    observe_training(rank, "after the step", [&](BlockNet& net, auto& optimizer, int number) {
      loss_of(net, rank, number).backward();
      optimizer.step();
      net.zero_grad();
    });
    observe_training(rank, "before backward", [&](BlockNet& net, auto& optimizer, int number) {
      const at::Tensor loss = loss_of(net, rank, number);
      net.zero_grad();
      loss.backward();
      optimizer.step();
    });
  });
  for (const char* name : {"after the step", "before backward"})
    expect_on_all_ranks(run, name, run.at(0, "plain"));
}

// Its forward throws when it is told to.
struct ThrowingBlock : LayerBlock {
  at::Tensor forward(at::Tensor x) override {
    if (throws) throw std::domain_error("no such row");
    return LayerBlock::forward(x);
  }
  bool throws{};
};

MULTI_RANK_TEST(AnyTraining, goes_on_after_a_forward_that_threw) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    for (const bool throws : {false, true}) {
      torch::manual_seed(1);
      BlockNet net(2);
      const auto block = net.register_module("b2", std::make_shared<ThrowingBlock>());
      net.blocks.push_back(block);
      FullyShardedDataParallel model(net, rank.communicator());
      const auto optimizer = adamw(model.parameters());
      for (int step = 0; step < 3; ++step) {
        for (const bool with_gradients : {true, false}) {
          const at::AutoGradMode mode(with_gradients);
          block->throws = throws;
          if (throws) {
            EXPECT_THROW(loss_of(net, rank, 7), std::domain_error);
          }
          block->throws = false;
        }
        loss_of(net, rank, step).backward();
        optimizer->step();
        optimizer->zero_grad();
      }
      rank.observe(throws ? "threw" : "plain", model.state_dict().at("b1.linear.weight"));
    }
  });
  expect_on_all_ranks(run, "threw", run.at(0, "plain"));
}

// Goes on without a block that cannot be called.
struct CatchingNet : BlockNet {
  CatchingNet() {
    blocks[1]->register_forward_pre_hook(
        [](Module&, const at::Tensor&) -> at::Tensor { throw std::domain_error("not today"); });
  }
  at::Tensor forward(at::Tensor x) override {
    for (const auto& block : blocks) {
      try {
        x = (*block)(x * scale);
      } catch (const std::domain_error&) {
      }
    }
    return x * scale;
  }
};

MULTI_RANK_TEST(AnyTraining, may_catch_in_forward_what_a_hook_of_an_inner_module_throws) {
  expect_equal_to_one_process(world_size(), {.build =
                                                 [] {
                                                   torch::manual_seed(1);
                                                   return std::make_shared<CatchingNet>();
                                                 },
                                             .loss = mean_square});
}

MULTI_RANK_TEST(AnyTraining, goes_on_after_a_forward_hook_that_threw) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto train = [&](bool throws) {
      const auto net = block_net();
      bool now = false;
      net->blocks[1]->register_forward_hook([&](Module&, const at::Tensor& y) {
        if (now) throw std::domain_error("not today");
        return at::Tensor();
      });
      FullyShardedDataParallel model(*net, rank.communicator());
      const auto optimizer = adamw(model.parameters());
      for (int step = 0; step < 2; ++step) {
        now = throws;
        if (now) {
          EXPECT_THROW(loss_of(*net, rank, 7), std::domain_error);
        }
        now = false;
        loss_of(*net, rank, step).backward();
        optimizer->step();
        optimizer->zero_grad();
      }
      rank.observe(throws ? "threw" : "plain", model.state_dict().at("b1.linear.weight"));
    };
    train(false);
    train(true);
  });
  expect_on_all_ranks(run, "threw", run.at(0, "plain"));
}

MULTI_RANK_TEST(AnyTraining, may_hook_the_gradients_of_its_modules_parameters) {
  const auto calls = std::make_shared<int>(0);
  Training training{.build = [] { return block_net(); }, .loss = mean_square};
  training.prepare = [calls](Module& model, int step) {
    if (step > 0) return;
    for (const at::Tensor& parameter : model.parameters())
      register_post_accumulate_grad_hook(parameter, [calls] { ++*calls; });
  };
  const RankRun expected =
      run_oracle([&](TestRank& rank) { train_in_one_process(rank, training, world_size()); });
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    train_sharded(rank, training);
    rank.observe("calls", *calls);
  });
  expect_on_all_ranks(run, "calls", training.steps * 7);
  for (const std::string name : expected.at(0, "names"))
    expect_on_all_ranks(run, name, expected.at(0, name));
}

MULTI_RANK_TEST(AnyTraining, may_be_evaluated_in_inference_mode_between_its_steps) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    observe_training(rank, "plain", plain_step(rank));
    observe_training(rank, "evaluated", [&](BlockNet& net, auto& optimizer, int number) {
      {
        const c10::InferenceMode inference;
        loss_of(net, rank, 7);
      }
      plain_step(rank)(net, optimizer, number);
    });
  });
  expect_on_all_ranks(run, "evaluated", run.at(0, "plain"));
}

MULTI_RANK_TEST(AnyTraining, goes_on_when_the_object_that_sharded_it_is_gone) {
  const auto train = [](TestRank& rank, bool keeps) {
    const auto net = block_net();
    auto model = std::make_unique<FullyShardedDataParallel<BlockNet>>(*net, rank.communicator());
    std::vector<at::Tensor> parameters = model->parameters();
    if (!keeps) model.reset();
    const auto optimizer = adamw(parameters);
    for (int step = 0; step < 3; ++step)
      plain_step(rank)(*net, *optimizer, step);
    return at::cat(parameters).detach();
  };
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    rank.observe("equal", at::equal(train(rank, true), train(rank, false)));
  });
  expect_on_all_ranks(run, "equal", true);
}

MULTI_RANK_TEST(AnyTraining, keeps_a_model_that_nobody_else_holds) {
  run_ranks(world_size(), [](TestRank& rank) {
    FullyShardedDataParallel model(*block_net(), rank.communicator());
    const auto optimizer = adamw(model.parameters());
    loss_of(model.module(), rank).backward();
    optimizer->step();
    EXPECT_EQ(model.state_dict().size(), 7U);
  });
}

MULTI_RANK_TEST(AnyTraining, may_end_before_its_optimizer_does_and_another_may_follow) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    std::unique_ptr<torch::optim::Optimizer> left;
    {
      const auto net = block_net();
      FullyShardedDataParallel model(*net, rank.communicator());
      left = adamw(model.parameters());
      loss_of(*net, rank).backward();
    }
    left->step();
    left->zero_grad();
    observe_training(rank, "second", plain_step(rank));
    left->step();
    left.reset();
    observe_training(rank, "third", plain_step(rank));
  });
  expect_on_all_ranks(run, "second", run.at(0, "third"));
}

MULTI_RANK_TEST(AnyTraining, goes_on_after_a_scope_of_full_parameters_that_threw) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    const at::Tensor before = model.state_dict().at("scale");
    const auto write_and_throw = [&] {
      model.summon_full_params([&] {
        const at::NoGradGuard no_grad;
        net->scale.fill_(9);
        throw std::domain_error("broken");
      });
    };
    EXPECT_THROW(write_and_throw(), std::domain_error);
    EXPECT_TRUE(at::equal(model.state_dict().at("scale"), before));
    const auto optimizer = adamw(model.parameters());
    for (int step = 0; step < 3; ++step)
      plain_step(rank)(*net, *optimizer, step);
    rank.observe("scale", model.state_dict().at("scale"));
  });
  const RankRun one = run_ranks(world_size(), [](TestRank& rank) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    const auto optimizer = adamw(model.parameters());
    for (int step = 0; step < 3; ++step)
      plain_step(rank)(*net, *optimizer, step);
    rank.observe("scale", model.state_dict().at("scale"));
  });
  expect_on_all_ranks(run, "scale", one.at(0, "scale"));
}

MULTI_RANK_TEST(AnyTraining, is_the_same_over_gloo) {
  const auto train = [](TestRank& rank) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator(), {.sync_module_states = true});
    const auto optimizer = adamw(model.parameters());
    for (int step = 0; step < 2; ++step) {
      loss_of(*net, rank, step).backward();
      rank.observe("norm " + std::to_string(step), model.clip_grad_norm_(0.1));
      optimizer->step();
      optimizer->zero_grad();
      model.load_state_dict(model.state_dict());
      model.load_optim_state_dict(*optimizer, model.optim_state_dict(*optimizer));
    }
    model.summon_full_params([&] { rank.observe("scale", net->scale.detach()); });
  };
  const RankRun shm = run_ranks(world_size(), train);
  const RankRun gloo = run_ranks(world_size(), train, {.backend = "gloo"});
  for (const char* name : {"norm 0", "norm 1", "scale"})
    expect_on_all_ranks(gloo, name, shm.at(0, name));
}

}  // namespace
}  // namespace fsdp
