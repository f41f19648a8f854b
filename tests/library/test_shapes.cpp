#include <checkpoint_activations.h>
#include <sequential.h>
#include <testing/error_text.h>
#include <torch/nn/modules/rnn.h>

#include <library/one_process.h>
#include <library/shaped_models.h>

// Modules that take and return anything, that are held, or that were built elsewhere: each model is
// compared with one process bit by bit.
namespace fsdp {
namespace {

MULTI_RANK_SUITE(AnyShape);

// `odd` differs between the ranks of a step.
template <class Model>
using LossOf = std::function<at::Tensor(Model& model, const at::Tensor& rows, bool odd)>;

template <class Model>
Training training_on_rows(std::function<std::shared_ptr<Model>()> build, LossOf<Model> loss) {
  return {.build =
              [build] {
                torch::manual_seed(3);
                return build();
              },
          .loss =
              [loss](Module& model, int part, int parts, int step) {
                return loss(dynamic_cast<Model&>(model), batch_part(part, parts, step, {3, kWidth}),
                            (part + step) % 2 == 1);
              }};
}

template <class Model>
void expect_equal(int world_size, LossOf<Model> loss, const std::string& unit) {
  Training training = training_on_rows<Model>([] { return std::make_shared<Model>(); }, loss);
  expect_equal_to_one_process(world_size, training);
  training.options.reshard_after_forward = false;
  training.options.wrap = wrap_by_type(unit);
  expect_equal_to_one_process(world_size, training);
}

MULTI_RANK_TEST(AnyShape, may_take_several_inputs_and_no_tensors_and_return_a_pair) {
  for (const bool twice : {false, true}) {
    const auto loss = [twice](CrossNet& net, const at::Tensor& rows, bool) {
      const auto [y, aside] = net(rows, twice);
      return y.square().mean() + aside;
    };
    expect_equal<CrossNet>(world_size(), loss, "CrossBlock");
  }
}

MULTI_RANK_TEST(AnyShape, may_have_an_output_that_some_ranks_leave_out) {
  const auto loss = [](CrossNet& net, const at::Tensor& rows, bool odd) {
    const auto [y, aside] = net(rows, false);
    return odd ? aside : y.square().mean();
  };
  expect_equal<CrossNet>(world_size(), loss, "CrossBlock");
}

MULTI_RANK_TEST(AnyShape, may_take_and_return_maps_with_integers_and_undefined_tensors) {
  for (const bool frozen : {false, true}) {
    const auto build = [frozen] { return std::make_shared<NamedNet>(frozen); };
    const LossOf<NamedNet> loss = [](NamedNet& net, const at::Tensor& rows, bool odd) {
      net.logits = odd;
      return net(rows).square().mean();
    };
    expect_equal_to_one_process(world_size(), training_on_rows<NamedNet>(build, loss));
  }
}

MULTI_RANK_TEST(AnyShape, may_return_a_tuple_of_a_list_and_a_struct) {
  const auto loss = [](StatefulNet& net, const at::Tensor& rows, bool) { return net(rows); };
  expect_equal<StatefulNet>(world_size(), loss, "RecurrentBlock");
}

MULTI_RANK_TEST(AnyShape, may_be_a_sequential_of_holders_and_of_modules_that_were_built_elsewhere) {
  const auto build = [] {
    return std::make_shared<Sequential>(
        TheirBlock(), HeldBlock(), torch::nn::Tanh(),
        torch::nn::Sequential(TheirBlock(), torch::nn::Tanh(), HeldBlock()));
  };
  const LossOf<Sequential> loss = [](Sequential& net, const at::Tensor& rows, bool) {
    return net(rows).square().mean();
  };
  expect_equal_to_one_process(world_size(), training_on_rows<Sequential>(build, loss));
}

MULTI_RANK_TEST(AnyShape, may_be_a_sequential_of_torch_that_was_built_elsewhere) {
  const auto build = [] {
    const torch::nn::Sequential theirs(torch::nn::Linear(kWidth, 5), torch::nn::Tanh(),
                                       torch::nn::Linear(5, kWidth));
    return hookable(theirs);
  };
  const LossOf<Sequential> loss = [](Sequential& net, const at::Tensor& rows, bool) {
    return net(rows).square().mean();
  };
  Training training = training_on_rows<Sequential>(build, loss);
  training.options.wrap = wrap_by_type("Linear");
  expect_equal_to_one_process(world_size(), training);
}

// A module of torch's that returns a tuple, as a unit, and what it returns in the loss.
using Lstm = ModuleOf<std::tuple<at::Tensor, std::tuple<at::Tensor, at::Tensor>>(
    const at::Tensor&, std::optional<std::tuple<at::Tensor, at::Tensor>>)>;

struct LstmNet : Module {
  at::Tensor forward(at::Tensor x) override {
    const auto [y, state] = (*lstm)(x.unsqueeze(1), std::nullopt);
    return y.sum() + std::get<1>(state).square().sum() + (x * scale).sum();
  }
  std::shared_ptr<Lstm> lstm = register_module(
      "lstm", hookable(torch::nn::LSTM(torch::nn::LSTMOptions(kWidth, 4).num_layers(2))));
  at::Tensor scale = register_parameter("scale", drawn({kWidth}));
};

MULTI_RANK_TEST(AnyShape, may_be_an_lstm_of_torch_with_all_that_it_returns) {
  const LossOf<LstmNet> loss = [](LstmNet& net, const at::Tensor& rows, bool) { return net(rows); };
  Training training = training_on_rows<LstmNet>([] { return std::make_shared<LstmNet>(); }, loss);
  training.options.wrap = wrap_by_type("LSTM");
  expect_equal_to_one_process(world_size(), training);
}

MULTI_RANK_TEST(AnyShape, is_called_and_gives_its_results_through_the_object_too) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const at::NoGradGuard no_grad;
    torch::manual_seed(3);
    CrossNet net;
    const at::Tensor rows = batch_part(0, 1, 0, {3, kWidth});
    const auto [y, aside] = net(rows, true);
    FullyShardedDataParallel model(net, rank.communicator());
    const std::pair<at::Tensor, at::Tensor> same = model(rows, true);
    rank.observe("equal", at::equal(same.first, y) && at::equal(same.second, aside));
    EXPECT_EQ(model.units().size(), 4U);
  });
  expect_on_all_ranks(run, "equal", true);
}

MULTI_RANK_SUITE_ON(CheckpointOfShapedModels, 1);

MULTI_RANK_TEST(CheckpointOfShapedModels, is_refused_by_the_name_of_the_module) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    CrossBlock block;
    rank.observe("error", thrown_by([&] { checkpoint_activations(block); }));
  });
  expect_error(run, "error",
               {"fsdp::CrossBlock does not take one tensor and return one, so its forward() can't "
                "be replaced, as by checkpoint_activations(); checkpoint modules of one tensor"});
}

}  // namespace
}  // namespace fsdp
