#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

// Each test provokes an error or a warning, for each way to divide the ranks into replicas. After
// it has followed the advice of the message, it expects that the error or the warning no longer
// comes.
namespace fsdp {
namespace {

MULTI_RANK_SUITE_ON(Advice, 2, 3, 4);

using Comm = std::shared_ptr<Communicator>;

// Returns a text such as "FIRST on rank 0, OTHERS on ranks 1, 2", which lists the ranks of this
// run.
std::string on_two(const TestRank& rank, const std::string& first, const std::string& others) {
  std::string text = first + " on rank 0, " + others + " on rank";
  text += rank.world_size() > 2 ? "s 1" : " 1";
  for (int other = 2; other < rank.world_size(); ++other)
    text += ", " + std::to_string(other);
  return text;
}

// Expects that `refused` throws "... ranks differ in DIFFERENCE...; ADVICE...".
void expect_advice(const std::function<void()>& refused, const std::string& difference,
                   const std::string& advice) {
  const std::string error = error_of(refused);
  EXPECT_CONTAINS(error, "ranks differ in " + difference);
  EXPECT_CONTAINS(error, "; " + advice);
}

MULTI_RANK_TEST(Advice, if_models_differ_between_ranks_the_error_advises_how_to_make_them_equal) {
  in_each_strategy(world_size(), [](TestRank& rank, const Comm& comm) {
    const int other = std::min(rank.rank(), 1);  // 0 on rank 0; 1 on all other ranks
    const auto shard = [&](Module& net, bool sync) {
      FullyShardedDataParallel model(net, comm, {.wrap = wrap_none(), .sync_module_states = sync});
      loss_of(net, rank).backward();
      return model.state_dict();
    };
    const auto seeded = buffered_block(static_cast<uint64_t>(other) + 1);
    expect_advice([&] { shard(*seeded, false); },
                  "the values of parameter linear.weight: ", "call the same torch::manual_seed()");
    EXPECT_TRUE(
        at::equal(shard(*seeded, true).at("linear.weight"), buffered_block()->linear->weight));
    const auto filled = buffered_block();
    filled->count.fill_(other);
    expect_advice([&] { shard(*filled, false); }, "the values of buffer count: ",
                  "fill it with the same values on every rank, or set .sync_module_states");
    EXPECT_EQ(shard(*filled, true).at("count").item<int64_t>(), 0);
    const auto frozen = buffered_block();
    frozen->linear->bias.set_requires_grad(other == 0);
    expect_advice([&] { shard(*frozen, false); },
                  "parameter linear.bias: " + on_two(rank, "trainable", "frozen"),
                  "freeze the same parameters on every rank");
    frozen->linear->bias.set_requires_grad(true);
    shard(*frozen, false);
  });
}

MULTI_RANK_TEST(Advice, following_the_advice_of_the_error_about_differing_buffers_resolves_it) {
  in_each_strategy(world_size(), [](TestRank& rank, const Comm& comm) {
    const auto net = buffered_block(), again = buffered_block();
    FullyShardedDataParallel model(*net, comm, {.wrap = wrap_none()});
    net->mean.fill_(rank.rank());
    net->count.fill_(rank.rank() + 5);
    expect_advice([&] { model.state_dict(); }, "the values of buffer mean: ",
                  "call average_buffers() before, or set .broadcast_buffers");
    model.average_buffers();
    const StateDict state = model.state_dict();
    EXPECT_TRUE(at::equal(state.at("mean"), at::full({2}, 0.5 * (rank.world_size() - 1))));
    EXPECT_EQ(state.at("count").item<int64_t>(), 5);
    FullyShardedDataParallel other(*again, comm, {.wrap = wrap_none(), .broadcast_buffers = true});
    again->count.fill_(rank.rank() + 6);
    loss_of(*again, rank).backward();
    EXPECT_EQ(again->count.item<int64_t>(), 6);
    again->count.fill_(rank.rank() + 7);
    EXPECT_EQ(other.state_dict().at("count").item<int64_t>(), 7);
  });
}

MULTI_RANK_TEST(Advice, following_the_advice_for_a_trained_ignored_module_resolves_the_error) {
  in_each_strategy(world_size(), [](TestRank& rank, const Comm& comm) {
    const auto net = buffered_block();
    at::Tensor weight = net->rest->linear->weight;
    WarningsOf warnings;
    FullyShardedDataParallel model(*net, comm, {.wrap = wrap_none(), .ignored = {net->rest.get()}});
    const std::string warning = "rest.linear.weight of an ignored module is trainable, and each";
    // There is no warning yet, because another wrapper may still replicate the ignored module
    // before the first forward.
    EXPECT_EQ(warnings.texts, "");
    loss_of(*net, rank);
    EXPECT_EQ(warnings.texts.find(warning) != std::string::npos, rank.rank() == 0);
    const auto step = [&] { torch::optim::SGD({weight}, torch::optim::SGDOptions(0.1)).step(); };
    weight.mutable_grad() = at::full_like(weight, rank.rank());
    step();
    expect_advice([&] { model.state_dict(); }, "the values of parameter rest.linear.weight: ",
                  "its module is ignored: copy them from one rank by Communicator::broadcast() "
                  "(with replicas, first by that of replicas()), and all-reduce its gradient");
    for (const Comm& level : {comm->replicas(), comm})
      if (level) level->broadcast(weight.detach(), 0, "rest").wait();
    for (const Comm& level : {comm, comm->replicas()})
      if (level) level->all_reduce(weight.grad(), "rest").wait();
    step();
    model.state_dict();
  });
}

MULTI_RANK_TEST(Advice, an_optimizer_group_without_parameters_gives_a_warning_on_rank_0) {
  in_each_strategy(world_size(), [](TestRank& rank, const Comm& comm) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, comm, {.wrap = wrap_none()});
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(model.parameters());
    groups.emplace_back(std::vector<at::Tensor>());
    torch::optim::AdamW optimizer(groups);
    const std::function<void()> calls[] = {[&] { model.check_optimizer(optimizer); },
                                           [&] { model.optim_state_dict(optimizer); }};
    for (const auto& call : calls) {
      WarningsOf warnings;
      call();
      EXPECT_EQ(warnings.texts.find("group 1 of the optimizer has no parameters; choose groups by "
                                    "dim() or by name") != std::string::npos,
                rank.rank() == 0);
    }
    const auto full = adamw(model.parameters());
    WarningsOf warnings;
    model.check_optimizer(*full);
    EXPECT_EQ(warnings.texts, "");
  });
}

MULTI_RANK_TEST(
    Advice, following_the_advice_for_an_optimizer_that_differs_between_ranks_resolves_the_error) {
  in_each_strategy(world_size(), [](TestRank& rank, const Comm& comm) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, comm);
    const int other = std::min(rank.rank(), 1);
    const auto refused = [&](torch::optim::Optimizer& optimizer, const std::string& difference,
                             const std::string& advice) {
      expect_advice([&] { model.check_optimizer(optimizer); }, difference, advice);
      expect_advice([&] { model.optim_state_dict(optimizer); }, difference, advice);
    };
    const auto optimizer = adamw(model.parameters());
    loss_of(*net, rank).backward();
    optimizer->step();
    const StateDict earlier = model.state_dict(), moments = model.optim_state_dict(*optimizer);
    optimizer->param_groups()[0].options().set_lr(other == 0 ? 0.01 : 1e-5);
    refused(*optimizer, "lr of scale (group 0): " + on_two(rank, "0.01", "1e-05"),
            "set the same on every rank");
    optimizer->param_groups()[0].options().set_lr(0.01);
    model.check_optimizer(*optimizer);
    for (int steps = 0; steps <= other; ++steps)
      optimizer->step();
    refused(*optimizer,
            "the optimizer's state of scale: " +
                on_two(rank, "exp_avg exp_avg_sq step=2", "exp_avg exp_avg_sq step=3"),
            "make the same steps on every rank; continue from an earlier state");
    model.load_state_dict(earlier);
    model.load_optim_state_dict(*optimizer, moments);
    optimizer->step();
    model.optim_state_dict(*optimizer);
    const auto all = model.parameters();
    const std::vector<at::Tensor> rest(all.begin() + 1, all.end());
    const auto sgd = [&](bool together) {
      std::vector<torch::optim::OptimizerParamGroup> groups;
      groups.emplace_back(together ? all : rest);
      groups.emplace_back(together ? std::vector<at::Tensor>() : std::vector{all[0]});
      return torch::optim::SGD(groups, torch::optim::SGDOptions(0.1));
    };
    auto apart = sgd(other == 0), alike = sgd(false);
    refused(apart, "where the optimizer has scale: " + on_two(rank, "in group 0", "in group 1"),
            "put it into the same group on every rank");
    model.optim_state_dict(alike);
  });
}

MULTI_RANK_TEST(Advice,
                following_the_advice_for_states_or_replicas_that_differ_resolves_the_error) {
  in_each_strategy(world_size(), [](TestRank& rank, const Comm& comm) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, comm);
    const auto optimizer = adamw(model.parameters());
    loss_of(*net, rank).backward();
    optimizer->step();
    const StateDict state = model.state_dict(), moments = model.optim_state_dict(*optimizer);
    // Only the last rank changes values, so only its replica has another state.
    const bool last = rank.rank() == rank.world_size() - 1;
    const auto load = [&](const StateDict& from, const char* name, bool lacks) {
      StateDict own = from.copy();
      own.insert_or_assign(name, from.at(name) + (last ? 1 : 0));
      const size_t erased = last && lacks ? own.erase(name) : 1;
      EXPECT_EQ(erased, 1U);
      if (from.contains("scale")) return model.load_state_dict(own);
      model.load_optim_state_dict(*optimizer, own);
    };
    const auto expect_refused = [&](const StateDict& from, const char* name) {
      expect_advice([&] { load(from, name, false); }, std::string("the values of ") + name,
                    "load the same on every rank");
      EXPECT_CONTAINS(error_of([&] { load(from, name, true); }), std::string("lacks ") + name);
    };
    expect_refused(state, "scale");
    expect_refused(moments, "scale/step");
    if (const auto replicas = comm->replicas()) {
      for (const at::Tensor& parameter : model.parameters())
        parameter.detach().add_(replicas->rank());
      expect_advice([&] { model.state_dict(); },
                    "the values of parameter scale: ", "load an earlier state");
      for (auto& [parameter, own] : optimizer->state())
        static_cast<torch::optim::AdamWParamState&>(*own).exp_avg().add_(replicas->rank());
      expect_advice([&] { model.optim_state_dict(*optimizer); },
                    "the values of b0.linear.bias/exp_avg: ", "load an earlier state");
    }
    model.load_state_dict(state);
    model.load_optim_state_dict(*optimizer, moments);
    EXPECT_TRUE(at::equal(model.state_dict().at("scale"), state.at("scale")));
    model.optim_state_dict(*optimizer);
  });
}

}  // namespace
}  // namespace fsdp
