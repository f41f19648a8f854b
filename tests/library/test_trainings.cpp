#include <nn/gradient_hook.h>

#include <library/models.h>
#include <library/one_process.h>

// Orders of calls that are no plain loop of steps.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(AnyTraining);

// Fails unless three steps, each made by `step`, end with the parameters of three plain ones.
using Step = std::function<void(ShardedNet& sharded, int number)>;
void expect_as_plain(
    int world_size, const Step& step, const OptimizerOf& optimizer = adamw,
    const std::function<std::shared_ptr<BlockNet>()>& build = [] { return block_net(); }) {
  const RankRun run = run_ranks(world_size, [&](TestRank& rank) {
    ShardedNet plain(rank, optimizer, build()), other(rank, optimizer, build());
    for (int number = 0; number < 3; ++number) {
      plain.step(number);
      step(other, number);
    }
    rank.observe("plain", plain.all_parameters());
    rank.observe("other", other.all_parameters());
  });
  expect_on_all_ranks(run, "other", run.at(0, "plain"));
}

MULTI_RANK_TEST(AnyTraining, may_be_evaluated_between_its_backward_and_its_step) {
  for (const auto& optimizer : {adamw, momentum}) {
    for (const bool with_gradients : {false, true}) {
      const auto step = [&](ShardedNet& sharded, int number) {
        loss_of(*sharded.net, sharded.rank, number).backward();
        {
          const at::AutoGradMode mode(with_gradients);
          loss_of(*sharded.net, sharded.rank, 7);
        }
        sharded.optimizer->step();
        sharded.optimizer->zero_grad();
      };
      expect_as_plain(world_size(), step, optimizer);
    }
  }
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

template <template <class> class Parallel>
void train_gan_on_ranks(TestRank& rank, const std::shared_ptr<Communicator>& of_judge) {
  const auto maker = block_net(2, 1), judge = block_net(2, 2);
  Parallel<BlockNet> first(*maker, rank.communicator()), second(*judge, of_judge);
  const auto one = adamw(first.parameters()), two = adamw(second.parameters());
  train_gan(
      *maker, *judge, [&](const auto& loss) { loss(rank.rank(), rank.world_size()).backward(); },
      *one, *two);
  rank.observe("maker", first.state_dict().at("b0.linear.weight"));
  rank.observe("judge", second.state_dict().at("b1.linear.weight"));
}

MULTI_RANK_TEST(AnyTraining, may_be_two_models_in_one_loss) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    train_gan_on_ranks<FullyShardedDataParallel>(rank, rank.communicator());
  });
  const RankRun apart = run_ranks(world_size(), [](TestRank& rank) {
    train_gan_on_ranks<FullyShardedDataParallel>(rank, rank.another_communicator());
  });
  const RankRun replicas = run_ranks(world_size(), [](TestRank& rank) {
    train_gan_on_ranks<DistributedDataParallel>(rank, rank.communicator());
  });
  const RankRun one_process = run_oracle([&](TestRank& rank) {
    const auto maker = block_net(2, 1), judge = block_net(2, 2);
    std::vector<at::Tensor> all = maker->parameters();
    for (const at::Tensor& parameter : judge->parameters())
      all.push_back(parameter);
    const auto one = adamw(maker->parameters()), two = adamw(judge->parameters());
    const auto backward = [&](const auto& loss) {
      backward_of_parts(all, world_size(), [&](int part) { return loss(part, world_size()); });
    };
    train_gan(*maker, *judge, backward, *one, *two);
    rank.observe("maker", maker->blocks[0]->linear->weight.detach());
    rank.observe("judge", judge->blocks[1]->linear->weight.detach());
  });
  for (const char* model : {"maker", "judge"}) {
    expect_on_all_ranks(run, model, one_process.at(0, model));
    expect_on_all_ranks(replicas, model, one_process.at(0, model));
    expect_on_all_ranks(apart, model, one_process.at(0, model));
  }
}

MULTI_RANK_TEST(AnyTraining, may_have_hundreds_of_units_and_gather_all_of_them_ahead) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    for (const int units : {100, 500}) {
      at::Tensor expected;
      for (const int limit : {2, 34, 64, 65, 500}) {
        ShardedNet sharded(rank, adamw, block_net(units), {.limit = limit});
        sharded.step();
        sharded.model.load_state_dict(sharded.model.state_dict());
        at::Tensor sum;
        sharded.model.summon_full_params([&] {
          for (const auto& block : sharded.net->blocks)
            sum = sum.defined() ? sum + block->linear->weight : block->linear->weight.clone();
        });
        if (!expected.defined()) expected = sum;
        EXPECT_TRUE(at::equal(sum, expected)) << units << " units, limit " << limit;
      }
    }
  });
}

MULTI_RANK_TEST(AnyTraining, goes_on_after_a_forward_that_threw) {
  expect_as_plain(world_size(), [](ShardedNet& sharded, int number) {
    for (const bool with_gradients : {true, false}) {
      const at::AutoGradMode mode(with_gradients);
      sharded.net->blocks[2]->throws = true;
      EXPECT_THROW(loss_of(*sharded.net, sharded.rank, 7), std::domain_error);
      sharded.net->blocks[2]->throws = false;
    }
    sharded.step(number);
  });
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
  expect_equal_to_one_process(world_size(), training_of<CatchingNet>());
}

MULTI_RANK_TEST(AnyTraining, goes_on_after_a_forward_hook_that_threw) {
  bool throws = false;  // of each rank
  const auto build = [&] {
    const auto net = block_net();
    net->blocks[1]->register_forward_hook([&](Module&, const at::Tensor&) {
      if (throws) throw std::domain_error("not today");
      return at::Tensor();
    });
    return net;
  };
  const auto step = [&](ShardedNet& sharded, int number) {
    throws = true;
    EXPECT_THROW(loss_of(*sharded.net, sharded.rank, 7), std::domain_error);
    throws = false;
    sharded.step(number);
  };
  expect_as_plain(world_size(), step, adamw, build);
}

MULTI_RANK_TEST(AnyTraining, may_hook_the_gradients_of_its_modules_parameters) {
  const auto calls = std::make_shared<int>(0);
  Training training{.build = [] { return block_net(); }};
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
  expect_parameters_of(expected, run);
}

MULTI_RANK_TEST(AnyTraining, may_be_evaluated_in_inference_mode_between_its_steps) {
  expect_as_plain(world_size(), [](ShardedNet& sharded, int number) {
    {
      const c10::InferenceMode inference;
      loss_of(*sharded.net, sharded.rank, 7);
    }
    sharded.step(number);
  });
}

MULTI_RANK_TEST(AnyTraining, goes_on_when_the_object_that_sharded_it_is_gone) {
  const auto train = [](TestRank& rank, bool keeps) {
    const auto net = block_net();
    auto model = std::make_unique<FullyShardedDataParallel<BlockNet>>(*net, rank.communicator());
    const std::vector<at::Tensor> parameters = model->parameters();
    if (!keeps) model.reset();
    const auto optimizer = adamw(parameters);
    for (int step = 0; step < 3; ++step) {
      loss_of(*net, rank, step).backward();
      optimizer->step();
      optimizer->zero_grad();
    }
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
    const auto train = [&](const std::string& name) {
      ShardedNet sharded(rank);
      for (int step = 0; step < 3; ++step)
        sharded.step(step);
      rank.observe(name, sharded.all_parameters());
      loss_of(*sharded.net, rank).backward();
      left = std::move(sharded.optimizer);
    };
    for (const char* name : {"first", "second"}) {
      train(name);
      left->step();
      left->zero_grad();
    }
  });
  expect_on_all_ranks(run, "second", run.at(0, "first"));
}

MULTI_RANK_TEST(AnyTraining, goes_on_after_a_scope_of_full_parameters_that_threw) {
  expect_as_plain(world_size(), [](ShardedNet& sharded, int number) {
    const auto write_and_throw = [&] {
      sharded.model.summon_full_params([&] {
        const at::NoGradGuard no_grad;
        sharded.net->scale.fill_(9);
        throw std::domain_error("broken");
      });
    };
    EXPECT_THROW(write_and_throw(), std::domain_error);
    sharded.step(number);
  });
}

MULTI_RANK_TEST(AnyTraining, is_the_same_over_gloo) {
  const auto train = [](TestRank& rank) {
    ShardedNet sharded(rank, adamw, block_net(), {.sync_module_states = true});
    auto& [_, net, model, optimizer] = sharded;
    for (int step = 0; step < 2; ++step) {
      loss_of(*net, rank, step).backward();
      rank.observe("norm " + std::to_string(step), model.clip_grad_norm_(0.1));
      optimizer->step();
      optimizer->zero_grad();
      model.load_state_dict(model.state_dict());
      model.load_optim_state_dict(*optimizer, model.optim_state_dict(*optimizer));
    }
    model.summon_full_params([&net = net, &rank] { rank.observe("scale", net->scale.detach()); });
  };
  const RankRun shm = run_ranks(world_size(), train);
  const RankRun gloo = run_ranks(world_size(), train, {.backend = "gloo"});
  for (const char* name : {"norm 0", "norm 1", "scale"})
    expect_on_all_ranks(gloo, name, shm.at(0, name));
}

}  // namespace
}  // namespace fsdp
