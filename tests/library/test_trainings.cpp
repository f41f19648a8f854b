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

}  // namespace
}  // namespace fsdp
