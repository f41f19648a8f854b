#include <checkpoint_activations.h>

#include <functional>
#include <stdexcept>
#include <string>

#include "hash_of_training.h"
#include "shaped_models.h"

// Models of modules of any shape, sharded, beside one process.
namespace fsdp {
namespace {

at::Tensor rows_of(int part, int parts, int64_t step) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(step));
  return at::randn({3 * parts, kWidth}, generator).chunk(parts)[part];
}

// The loss of a part of a step by a model's own type.
template <class Model>
using LossOf = std::function<at::Tensor(Model& model, const at::Tensor& rows, bool odd)>;

// `odd` differs between the ranks of a step.
template <class Model>
Workload workload_of(std::function<std::shared_ptr<Model>()> build, LossOf<Model> loss) {
  return {[build] {
            torch::manual_seed(3);
            return build();
          },
          [loss](Module& model, int part, int parts, int64_t step) {
            const bool odd = (part + step) % 2 == 1;
            return loss(dynamic_cast<Model&>(model), rows_of(part, parts, step), odd);
          }};
}

Workload cross_attention(bool twice) {
  return workload_of<CrossNet>([] { return std::make_shared<CrossNet>(); },
                               [twice](CrossNet& net, const at::Tensor& rows, bool odd) {
                                 const auto [y, aside] = net(rows, twice);
                                 return y.square().mean() + aside;
                               });
}

// Of the blocks' two outputs the loss takes one, another one on every other rank.
Workload one_of_two_outputs() {
  return workload_of<CrossNet>([] { return std::make_shared<CrossNet>(); },
                               [](CrossNet& net, const at::Tensor& rows, bool odd) {
                                 const auto [y, aside] = net(rows, false);
                                 return odd ? aside : y.square().mean();
                               });
}

Workload named_outputs(bool frozen) {
  return workload_of<NamedNet>([frozen] { return std::make_shared<NamedNet>(frozen); },
                               [](NamedNet& net, const at::Tensor& rows, bool odd) {
                                 net.logits = odd;
                                 return net(rows).square().mean();
                               });
}

Workload recurrent() {
  return workload_of<StatefulNet>(
      [] { return std::make_shared<StatefulNet>(); },
      [](StatefulNet& net, const at::Tensor& rows, bool) { return net(rows); });
}

// Blocks that are held, and blocks of torch's, some in one of its containers.
Workload built_elsewhere() {
  return workload_of<Sequential>(
      [] {
        return std::make_shared<Sequential>(
            TheirBlock(), HeldBlock(), torch::nn::Tanh(),
            torch::nn::Sequential(TheirBlock(), torch::nn::Tanh(), HeldBlock()));
      },
      [](Sequential& net, const at::Tensor& rows, bool) { return net(rows).square().mean(); });
}

TrainConfig config_of(const std::string& mode, int world_size, const std::string& wrap = "block") {
  TrainConfig config;
  config.mode = mode;
  config.world = world_size;
  config.parts = 2 * world_size;
  config.optimizer.lr = 0.01;
  config.wrap = wrap;
  return config;
}

void expect_as_in_one_process(const Workload& workload, int world_size) {
  const auto expected = hash_of_training(config_of("single", world_size), workload);
  for (const char* wrap : {"block", "none"})
    EXPECT_EQ(hash_of_training(config_of("fsdp", world_size, wrap), workload), expected) << wrap;
  const auto reduced_last = [&](const char* mode) {
    TrainConfig config = config_of(mode, world_size);
    config.reshard_after_forward = false;
    config.accumulate = "last";
    return hash_of_training(config, workload);
  };
  for (const char* mode : {"fsdp", "ddp"})
    EXPECT_EQ(reduced_last(mode), reduced_last("single"))
        << mode << ", reduced after the last part";
}

MULTI_RANK_SUITE(ShapedModels);

MULTI_RANK_TEST(ShapedModels, with_several_inputs_and_outputs_train_as_in_one_process) {
  expect_as_in_one_process(cross_attention(/*twice=*/false), world_size());
}

MULTI_RANK_TEST(ShapedModels, whose_blocks_are_called_twice_train_as_in_one_process) {
  expect_as_in_one_process(cross_attention(/*twice=*/true), world_size());
}

MULTI_RANK_TEST(ShapedModels, of_whose_outputs_the_loss_takes_one_train_as_in_one_process) {
  expect_as_in_one_process(one_of_two_outputs(), world_size());
}

MULTI_RANK_TEST(ShapedModels, with_named_outputs_train_as_in_one_process) {
  expect_as_in_one_process(named_outputs(/*frozen=*/false), world_size());
}

MULTI_RANK_TEST(ShapedModels, with_frozen_blocks_train_as_in_one_process) {
  expect_as_in_one_process(named_outputs(/*frozen=*/true), world_size());
}

MULTI_RANK_TEST(ShapedModels, with_a_state_of_their_own_class_train_as_in_one_process) {
  expect_as_in_one_process(recurrent(), world_size());
}

MULTI_RANK_TEST(ShapedModels, that_were_built_elsewhere_train_as_in_one_process) {
  expect_as_in_one_process(built_elsewhere(), world_size());
}

MULTI_RANK_TEST(ShapedModels, are_gathered_and_reduced_block_by_block) {
  const auto units_of = [&](const Workload& workload) {
    const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
      const TrainConfig config = config_of("fsdp", world_size());
      const auto strategy = strategy_of(rank, config, workload);
      strategy->forward_backward(0);
      std::string reduced;
      for (const Call& call : rank.communicator()->take_log())
        if (call.operation == Operation::reduce_scatter) reduced += call.unit.str() + " ";
      rank.observe("reduced", reduced);
    });
    return run.at(0, "reduced").get<std::string>();
  };
  EXPECT_EQ(units_of(cross_attention(true)), "2 1 0 root 2 1 0 root ");
  EXPECT_EQ(units_of(recurrent()), "1 0 root 1 0 root ");
  EXPECT_EQ(units_of(built_elsewhere()), "3.2 3.0 1 0 3.2 3.0 1 0 ");
}

MULTI_RANK_SUITE_ON(CheckpointOfShapedModels, 1);

MULTI_RANK_TEST(CheckpointOfShapedModels, is_refused_by_the_name_of_the_module) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    CrossBlock block;
    try {
      checkpoint_activations(block);
      rank.observe("says", "nothing");
    } catch (const std::logic_error& error) {
      rank.observe("says", error.what());
    }
  });
  expect_on_rank(
      run, 0, "says",
      "fsdp::CrossBlock does not take one tensor and return one, so its forward() can't "
      "be replaced, as by checkpoint_activations(); checkpoint modules of one tensor inside "
      "it");
}

MULTI_RANK_TEST(ShapedModels, may_have_checkpointed_modules_of_one_tensor) {
  const auto with = [](bool checkpointed) {
    return workload_of<Sequential>(
        [checkpointed] {
          auto net = std::make_shared<Sequential>(TheirBlock(), HeldBlock(), TheirBlock());
          for (const auto& child : net->children())
            if (checkpointed) checkpoint_activations(dynamic_cast<Module&>(*child));
          return net;
        },
        [](Sequential& net, const at::Tensor& rows, bool) { return net(rows).square().mean(); });
  };
  EXPECT_EQ(hash_of_training(config_of("fsdp", world_size()), with(true)),
            hash_of_training(config_of("single", world_size()), with(false)));
}

}  // namespace
}  // namespace fsdp
