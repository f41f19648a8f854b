#include <torch/optim/lbfgs.h>
#include <torch/serialize.h>

#include <map>
#include <sstream>

#include <common/expect_text.h>
#include <library/models.h>
#include <library/one_process.h>

namespace fsdp {
namespace {

MULTI_RANK_SUITE(OptimStateDict);

MULTI_RANK_TEST(OptimStateDict,
                optim_state_dict_refuses_lbfgs_and_an_optimizer_over_the_modules_parameters) {
  run_ranks(world_size(), [](TestRank& rank) {
    const auto net = block_net();
    FullyShardedDataParallel model(*net, rank.communicator());
    torch::optim::LBFGS optimizer(model.parameters());
    EXPECT_CONTAINS(error_of([&] { model.optim_state_dict(optimizer); }),
                    "the optimizer must be AdamW");
    torch::optim::SGD of_module(net->parameters(), torch::optim::SGDOptions(0.1));
    EXPECT_CONTAINS(error_of([&] { model.optim_state_dict(of_module); }),
                    "not in model.parameters()");
  });
}

// Returns a function that makes an optimizer with two groups. One group has the parameters with an
// even index, the other one has those with an odd index and twice the learning rate. If `reversed`,
// the other group comes first. `factor` multiplies both learning rates.
template <class Optimizer, class Options>
auto grouped(Options options) {
  return [options](std::vector<at::Tensor> parameters, bool reversed, double factor) {
    std::vector<std::vector<at::Tensor>> parts(2);
    for (size_t i = 0; i < parameters.size(); ++i)
      parts[i % 2].push_back(parameters[i]);
    std::vector<torch::optim::OptimizerParamGroup> groups;
    for (size_t i = 0; i < 2; ++i) {
      const size_t part = reversed ? 1 - i : i;
      Options own = options;
      own.lr(0.01 * factor * static_cast<double>(part + 1));
      groups.emplace_back(parts[part], std::make_unique<Options>(own));
    }
    return std::unique_ptr<torch::optim::Optimizer>(std::make_unique<Optimizer>(groups, options));
  };
}

using Grouped =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>, bool, double)>;
std::map<std::string, Grouped> every_optimizer() {
  using namespace torch::optim;
  return {{"AdamW", grouped<AdamW>(AdamWOptions())},
          {"Adam", grouped<Adam>(AdamOptions())},
          {"Adam, amsgrad", grouped<Adam>(AdamOptions().amsgrad(true).weight_decay(0.1))},
          {"SGD", grouped<SGD>(SGDOptions(1))},
          {"SGD, momentum", grouped<SGD>(SGDOptions(1).momentum(0.9).nesterov(true))},
          {"RMSprop", grouped<RMSprop>(RMSpropOptions())},
          {"RMSprop, all", grouped<RMSprop>(RMSpropOptions().momentum(0.5).centered(true))},
          {"Adagrad", grouped<Adagrad>(AdagradOptions().lr_decay(0.1))}};
}

ShardedNet sharded_net(TestRank& rank, const Grouped& make, bool reversed, uint64_t seed = 1) {
  const OptimizerOf optimizer = [&](std::vector<at::Tensor> parameters) {
    return make(std::move(parameters), reversed, reversed ? 9 : 1);
  };
  return ShardedNet(rank, optimizer, block_net(3, seed));
}

// Returns, by the name of a parameter, the options of its group in `state`. They do not depend on
// the order of the groups.
nlohmann::json options_in(const StateDict& state) {
  const at::Tensor text = state.at("param_groups");
  const auto* begin = text.data_ptr<uint8_t>();
  const auto all = nlohmann::json::parse(begin, begin + text.numel());
  nlohmann::json options;
  for (const auto& [name, own] : all.at("params").items())
    options[name] = all.at("groups").at(own.at("group").get<size_t>());
  return options;
}

// The state is loaded into an optimizer that has its groups in another order and has made a step.
MULTI_RANK_TEST(OptimStateDict, load_optim_state_dict_restores_options_and_moments) {
  run_ranks(world_size(), [](TestRank& rank) {
    for (const auto& [name, make] : every_optimizer()) {
      ShardedNet saved = sharded_net(rank, make, false), loaded = sharded_net(rank, make, true, 9);
      saved.step();
      loaded.step(5);
      const StateDict state = saved.model.optim_state_dict(*saved.optimizer);
      loaded.model.load_state_dict(saved.model.state_dict());
      loaded.model.load_optim_state_dict(*loaded.optimizer, state);
      const StateDict again = loaded.model.optim_state_dict(*loaded.optimizer);
      EXPECT_EQ(options_in(again), options_in(state)) << name;
      EXPECT_EQ(options_in(state).at("scale").at("lr"), 0.01) << name;
      saved.step(1);
      loaded.step(1);
      EXPECT_TRUE(at::equal(saved.all_parameters(), loaded.all_parameters())) << name;
    }
  });
}

MULTI_RANK_TEST(OptimStateDict, load_optim_state_dict_throws_for_missing_and_unexpected_entries) {
  run_ranks(world_size(), [](TestRank& rank) {
    std::map<std::string, StateDict> states;
    for (const auto& [name, make] : every_optimizer()) {
      ShardedNet sharded = sharded_net(rank, make, false);
      sharded.step();
      const StateDict state = sharded.model.optim_state_dict(*sharded.optimizer);
      const auto refused = [&](const StateDict& changed, const std::string& says) {
        EXPECT_CONTAINS(
            error_of([&] { sharded.model.load_optim_state_dict(*sharded.optimizer, changed); }),
            says);
      };
      const auto with = [&](const std::string& key, const at::Tensor& value) {
        StateDict another = state.copy();
        another.insert_or_assign(key, value);
        return another;
      };
      for (const auto& entry : state) {
        const std::string& key = entry.key();
        // Skips the entries of the blocks b0, b1, ... The library handles them as it handles the
        // entries of the root's scale, which are tested.
        if (key.starts_with("b")) continue;
        StateDict lacking = state.copy();
        EXPECT_EQ(lacking.erase(key), 1U);
        refused(lacking, "lacks " + key);
        if (key != "param_groups")
          refused(with(key, at::ones({8})), key + " is Float [8], and the parameter is Float [");
      }
      refused(with("param_groups", at::full({1 << 20}, '[', at::kByte)),
              "param_groups is damaged: it is JSON that is nested too deep");
      refused(with("late/exp_avg", at::ones({1})), "has late/exp_avg");
      const auto class_of = [](const std::string& text) { return text.substr(0, text.find(',')); };
      for (const auto& [other, of_other] : states)
        if (class_of(other) != class_of(name))
          refused(of_other, "the state is that of " + class_of(other) + ", and the optimizer is " +
                                class_of(name) + "; make " + class_of(other));
      states.emplace(name, state);
      sharded.model.load_optim_state_dict(*sharded.optimizer, state);
    }
  });
}

MULTI_RANK_TEST(OptimStateDict, load_optim_state_dict_names_a_parameter_that_is_in_another_group) {
  run_ranks(world_size(), [](TestRank& rank) {
    ShardedNet one(rank), two = sharded_net(rank, every_optimizer().at("AdamW"), false);
    const auto load = [](ShardedNet& from, ShardedNet& into) {
      return error_of([&] {
        into.model.load_optim_state_dict(*into.optimizer,
                                         from.model.optim_state_dict(*from.optimizer));
      });
    };
    EXPECT_CONTAINS(load(one, two),
                    "b0.linear.weight is in group 1 of the optimizer and in group 0 of the state, "
                    "and b0.linear.bias in group 0 and in group 0; make the optimizer with "
                    "the groups that were saved");
    EXPECT_CONTAINS(load(two, one),
                    "b0.linear.weight is in group 0 of the optimizer and in group 1");
    torch::optim::AdamW few({one.model.parameters()[1]}, torch::optim::AdamWOptions(0.05));
    EXPECT_CONTAINS(error_of([&] {
                      one.model.load_optim_state_dict(few,
                                                      one.model.optim_state_dict(*one.optimizer));
                    }),
                    "b0.linear.bias is in no group of the optimizer and in group 0 of the state");
  });
}

MULTI_RANK_TEST(OptimStateDict, torch_save_and_load_restore_each_ranks_part_of_an_optimizer) {
  run_ranks(world_size(), [](TestRank& rank) {
    ShardedNet saved(rank), loaded(rank);
    saved.step();
    std::stringstream file;
    torch::save(*saved.optimizer, file);
    torch::load(*loaded.optimizer, file);
    loaded.model.load_state_dict(saved.model.state_dict());
    saved.step(1);
    loaded.step(1);
    EXPECT_TRUE(at::equal(loaded.all_parameters(), saved.all_parameters()));
  });
}

}  // namespace
}  // namespace fsdp
