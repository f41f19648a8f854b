#include <nn/layers.h>
#include <nn/reads_in_calls.h>
#include <torch/optim/sgd.h>

#include <common/expect_text.h>
#include <library/one_process.h>

#include <memory>
#include <vector>

// Tests models that promise (ReadsInCalls) to read a parameter only in calls of the module that has
// it.
namespace fsdp {
namespace {

constexpr int64_t kRowWidth = 9;

struct ScalingBlock : Module {
  at::Tensor forward(at::Tensor x) override { return (x * scale).tanh(); }
  at::Tensor scale = register_parameter("scale", at::randn({kRowWidth}));  // [kRowWidth]
};

// Computes rows -> embedding -> two blocks -> head. The weight of the head is tied to that of the
// embedding and belongs to the root.
struct TiedRows : Module {
  TiedRows() {
    embedding =
        register_module("embedding", std::make_shared<Embedding>(at::randn({7, kRowWidth})));
    for (const char* name : {"first", "second"})
      blocks.push_back(register_module(name, std::make_shared<ScalingBlock>()));
    head = register_module("head", std::make_shared<Linear>(embedding->weight()));
  }
  at::Tensor forward(at::Tensor rows) override { return run((*embedding)(rows)); }
  at::Tensor run(at::Tensor x) {
    for (const auto& block : blocks)
      x = (*block)(x);
    return (*head)(x);
  }
  std::shared_ptr<Embedding> embedding;
  std::vector<std::shared_ptr<ScalingBlock>> blocks;
  std::shared_ptr<Linear> head;
};

struct PromisingRows : TiedRows, ReadsInCalls {};

// Reads the tied weight in a function, outside of calls of the embedding and the head. So backward
// also reads it outside of the backward passes of these two modules.
struct WithFunction : TiedRows {
  at::Tensor forward(at::Tensor rows) override {
    const at::Tensor x = (*embedding)(rows);
    return run(x * at::linear(x, embedding->weight()).mean());
  }
};
struct WithBrokenPromise : WithFunction, ReadsInCalls {};

template <class Model>
StateDict trained(TestRank& rank) {
  torch::manual_seed(1);
  Model net;
  FullyShardedDataParallel model(net, rank.communicator(), {.wrap = wrap_by_type("ScalingBlock")});
  torch::optim::SGD optimizer(model.parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    model(at::tensor({rank.rank(), 1, step})).square().mean().backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  return model.state_dict();
}

void expect_equal(const StateDict& found, const StateDict& expected) {
  for (const auto& entry : expected)
    EXPECT_TRUE(at::equal(found.at(entry.key()), entry.value())) << entry.key();
}

MULTI_RANK_SUITE(ReadsInCallsPromise);

MULTI_RANK_TEST(ReadsInCallsPromise,
                a_model_that_keeps_its_promise_reads_in_calls_trains_to_the_same_bits) {
  run_ranks(world_size(), [](TestRank& rank) {
    const StateDict expected = trained<TiedRows>(rank), found = trained<PromisingRows>(rank);
    expect_equal(found, expected);
  });
}

MULTI_RANK_TEST(
    ReadsInCallsPromise,
    a_model_whose_function_reads_a_weight_trains_if_it_does_not_promise_reads_in_calls) {
  run_ranks(world_size(), [](TestRank& rank) { EXPECT_NO_THROW(trained<WithFunction>(rank)); });
}

MULTI_RANK_TEST(ReadsInCallsPromise,
                the_error_of_backward_names_a_model_that_breaks_its_promise_reads_in_calls) {
  run_ranks(world_size(), [](TestRank& rank) {
    const std::string error = error_of([&] { trained<WithBrokenPromise>(rank); });
    EXPECT_CONTAINS(error, "of unit root");
    EXPECT_CONTAINS(error, "in backward, which reads them");
    EXPECT_CONTAINS(error, "WithBrokenPromise is a ReadsInCalls");
    EXPECT_CONTAINS(error, "do not derive it from ReadsInCalls");
  });
}

}  // namespace
}  // namespace fsdp
