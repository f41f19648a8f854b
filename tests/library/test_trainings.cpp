#include <library/models.h>
#include <library/one_process.h>

// Orders of calls that are no plain loop of steps.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(AnyTraining);

MULTI_RANK_TEST(AnyTraining, may_be_evaluated_between_its_backward_and_its_step) {
  const auto train = [](TestRank& rank, bool evaluates, bool with_gradients) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    const auto optimizer = adamw(model.parameters());
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
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    rank.observe("without", train(rank, false, false));
    rank.observe("evaluated", train(rank, true, false));
    rank.observe("forward alone", train(rank, true, true));
  });
  expect_on_all_ranks(run, "evaluated", run.at(0, "without"));
  expect_on_all_ranks(run, "forward alone", run.at(0, "without"));
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

}  // namespace
}  // namespace fsdp
