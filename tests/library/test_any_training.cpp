#include <nn/gradient_hook.h>
#include <torch/nn/utils/convert_parameters.h>

#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

#include <thread>

// Tests training loops that are not a plain loop of forward, backward and step, and that
// tests/properties does not generate.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(AnyTraining);

using Step = std::function<void(ShardedNet& sharded, int number)>;

// Trains `other` by kSteps calls of `step`, and a new model by kSteps calls of `plain_step`. Fails
// unless both end with the same parameters.
void expect_as_plain(ShardedNet& other, const Step& step,
                     const Step& plain_step = &ShardedNet::step,
                     const OptimizerOf& optimizer = adamw) {
  ShardedNet plain(other.rank, optimizer);
  for (int number = 0; number < kSteps; ++number) {
    plain_step(plain, number);
    step(other, number);
  }
  EXPECT_TRUE(at::equal(plain.all_parameters(), other.all_parameters()));
}

// A communicator has at most 64 pending calls. The prefetch limits in this test (.limit) are below,
// at and above this number.
MULTI_RANK_TEST(AnyTraining,
                a_model_of_200_units_ends_with_the_same_sum_of_weights_for_every_prefetch_limit) {
  run_ranks(world_size(), [](TestRank& rank) {
    at::Tensor expected;
    for (const int limit : {2, 34, 64, 65, 200}) {
      ShardedNet sharded(rank, adamw, block_net(200), {.limit = limit});
      sharded.step();
      sharded.model.load_state_dict(sharded.model.state_dict());
      at::Tensor sum = at::zeros({7, 7});
      sharded.model.summon_full_params([&] {
        for (const auto& block : sharded.net->blocks)
          sum += block->linear->weight.detach();
      });
      if (!expected.defined()) expected = sum;
      EXPECT_TRUE(at::equal(sum, expected)) << "limit " << limit;
    }
  });
}

MULTI_RANK_TEST(AnyTraining, hooks_on_the_modules_parameters_are_called_and_change_no_result) {
  run_ranks(world_size(), [](TestRank& rank) {
    int calls = 0;
    ShardedNet sharded(rank);
    for (const at::Tensor& parameter : sharded.net->parameters())
      register_post_accumulate_grad_hook(parameter, [&calls] { ++calls; });
    expect_as_plain(sharded, &ShardedNet::step);
    EXPECT_EQ(calls, kSteps * 7);
  });
}

MULTI_RANK_TEST(AnyTraining, gradients_pass_through_the_hooks_of_the_tensors_of_model_parameters) {
  run_ranks(world_size(), [](TestRank& rank) {
    int calls = 0;
    ShardedNet sharded(rank, momentum);
    for (const at::Tensor& parameter : sharded.model.parameters()) {
      parameter.register_hook([](const at::Tensor& gradient) { return gradient.clamp(-0.1, 0.1); });
      register_post_accumulate_grad_hook(parameter, [&calls] { ++calls; });
    }
    const auto cut_by_hand = [](ShardedNet& plain, int number) {
      loss_of(*plain.net, plain.rank, number).backward();
      for (const at::Tensor& parameter : plain.model.parameters())
        parameter.grad().clamp_(-0.1, 0.1);
      plain.optimizer->step();
      plain.optimizer->zero_grad();
    };
    expect_as_plain(sharded, &ShardedNet::step, cut_by_hand, momentum);
    EXPECT_EQ(calls, kSteps * 7);
  });
}

MULTI_RANK_TEST(AnyTraining, model_parameters_can_be_called_for_the_first_time_after_backward) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto trained = [&](bool asks_first) {
      const auto net = block_net();
      FullyShardedDataParallel model(*net, rank.communicator());
      if (asks_first) model.parameters();
      {
        const NoSync no_sync = model.no_sync();
        loss_of(*net, rank, 0).backward();
      }
      loss_of(*net, rank, 1).backward();
      EXPECT_GT(model.clip_grad_norm_(0.01), 0.01);
      momentum(model.parameters())->step();
      return model.state_dict().at("b0.linear.weight");
    };
    EXPECT_TRUE(at::equal(trained(false), trained(true)));
  });
}

// On a GPU, a thread of the autograd engine can be the last owner of the object that stands for the
// backward pass. To get this case on the CPU, the test calls backward() in another thread.
MULTI_RANK_TEST(AnyTraining,
                a_step_after_a_backward_that_threw_in_another_thread_throws_until_zero_grad) {
  run_ranks(world_size(), [](TestRank& rank) {
    ShardedNet sharded(rank, momentum);
    const at::Tensor x = at::ones({2, 7}).requires_grad_();
    x.register_hook([](const at::Tensor&) { throw std::domain_error("broken"); });
    const at::Tensor loss = (*sharded.net)(x).sum();
    std::thread([&] { EXPECT_THROW(loss.backward(), std::exception); }).join();
    EXPECT_CONTAINS(error_of([&] { sharded.optimizer->step(); }), "call zero_grad()");
    sharded.model.zero_grad();
    // This test uses SGD, because AdamW would have counted the step that threw.
    expect_as_plain(sharded, &ShardedNet::step, &ShardedNet::step, momentum);
  });
}

MULTI_RANK_TEST(AnyTraining, after_a_forward_that_throws_no_unit_has_a_pending_all_gather) {
  run_ranks(world_size(), [](TestRank& rank) {
    ShardedNet sharded(rank);
    sharded.step();  // the second forward knows the order of the units and gathers b1 ahead of b0
    auto& b0 = dynamic_cast<Module&>(*sharded.net->named_children()["b0"]);
    b0.register_forward_pre_hook(
        [](Module&, const at::Tensor&) -> at::Tensor { throw std::domain_error("broken"); });
    EXPECT_THROW(loss_of(*sharded.net, rank, 0), std::domain_error);
    for (const auto& unit : sharded.model.units())
      EXPECT_NE(unit->state(), UnitState::gathering) << unit->unit();
  });
}

// In this test, the units have reduced their gradients before the backward throws.
MULTI_RANK_TEST(AnyTraining, zero_grad_of_the_optimizer_drops_gradients_of_a_backward_that_threw) {
  run_ranks(world_size(), [](TestRank& rank) {
    ShardedNet sharded(rank, momentum);
    const at::Tensor x = at::ones({2, 7}).requires_grad_();
    x.register_hook([](const at::Tensor&) { throw std::domain_error("broken"); });
    EXPECT_THROW((*sharded.net)(x).sum().backward(), std::exception);
    sharded.optimizer->zero_grad();
    expect_as_plain(sharded, &ShardedNet::step, &ShardedNet::step, momentum);
  });
}

// Both forwards run before the first backward throws. So no forward notices the failure; a hook of
// the second backward does.
MULTI_RANK_TEST(AnyTraining,
                a_step_throws_until_zero_grad_if_the_backward_before_the_last_one_threw) {
  run_ranks(world_size(), [](TestRank& rank) {
    ShardedNet sharded(rank, momentum);
    const at::Tensor x = at::ones({2, 7}).requires_grad_();
    x.register_hook([](const at::Tensor&) { throw std::domain_error("broken"); });
    const at::Tensor breaks = (*sharded.net)(x).sum();
    const at::Tensor loss = loss_of(*sharded.net, rank, 0);
    EXPECT_THROW(breaks.backward(), std::exception);
    loss.backward();
    EXPECT_CONTAINS(error_of([&] { sharded.optimizer->step(); }), "call zero_grad()");
    sharded.model.zero_grad();
    expect_as_plain(sharded, &ShardedNet::step, &ShardedNet::step, momentum);
  });
}

MULTI_RANK_TEST(AnyTraining, training_continues_after_summon_full_params_has_thrown) {
  run_ranks(world_size(), [](TestRank& rank) {
    ShardedNet sharded(rank);
    const auto write_and_throw = [&] {
      const at::NoGradGuard no_grad;
      sharded.net->scale.fill_(9);
      throw std::domain_error("broken");
    };
    expect_as_plain(sharded, [&](ShardedNet&, int number) {
      EXPECT_THROW(sharded.model.summon_full_params(write_and_throw), std::domain_error);
      sharded.step(number);
    });
  });
}

MULTI_RANK_TEST(AnyTraining, a_sharded_model_can_still_train_after_its_wrapper_was_destroyed) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto trained = [&](bool keeps) {
      const auto net = block_net();
      auto model = std::make_unique<FullyShardedDataParallel<BlockNet>>(*net, rank.communicator());
      const std::vector<at::Tensor> parameters = model->parameters();
      if (!keeps) model.reset();
      const auto optimizer = adamw(parameters);
      for (int step = 0; step < kSteps; ++step) {
        loss_of(*net, rank, step).backward();
        optimizer->step();
        optimizer->zero_grad();
      }
      return this_ranks_part(torch::nn::utils::parameters_to_vector(parameters)).detach();
    };
    EXPECT_TRUE(at::equal(trained(true), trained(false)));
  });
}

MULTI_RANK_TEST(AnyTraining, the_wrapper_keeps_the_module_alive_that_it_shards) {
  run_ranks(world_size(), [](TestRank& rank) {
    FullyShardedDataParallel model(*block_net(), rank.communicator());
    const auto optimizer = adamw(model.parameters());
    loss_of(model.module(), rank).backward();
    optimizer->step();
    EXPECT_EQ(model.state_dict().size(), 7U);
  });
}

MULTI_RANK_TEST(AnyTraining, an_optimizer_can_outlive_its_model_and_another_training_can_follow) {
  run_ranks(world_size(), [](TestRank& rank) {
    std::unique_ptr<torch::optim::Optimizer> left;
    const auto trained = [&] {
      ShardedNet sharded(rank);
      for (int step = 0; step < kSteps; ++step)
        sharded.step(step);
      loss_of(*sharded.net, rank).backward();
      left = std::move(sharded.optimizer);
      return sharded.all_parameters();
    };
    const at::Tensor first = trained();
    left->step();
    left->zero_grad();
    EXPECT_TRUE(at::equal(trained(), first));
  });
}

}  // namespace
}  // namespace fsdp
