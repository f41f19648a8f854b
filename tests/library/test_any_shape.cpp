#include <module_holder.h>
#include <module_of.h>
#include <sequential.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/rnn.h>

#include <library/one_process.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

// Trains modules with inputs and outputs of any types, modules in holders, and modules of torch,
// and compares each training bit by bit with one process.
namespace fsdp {
namespace {

constexpr int64_t kWidth = 9;

at::Tensor drawn(at::IntArrayRef sizes) {
  return at::randn(sizes) * 0.3;
}

// Cross-attention with several inputs, one of which is not a tensor, and with a second output that
// measures how concentrated the attention is.
struct CrossBlock
    : ModuleOf<std::pair<at::Tensor, at::Tensor>(at::Tensor x, const at::Tensor& context,
                                                 const at::Tensor& mask, int heads)> {
  CrossBlock()
      : query(register_parameter("query", drawn({kWidth, kWidth}))),
        both(register_parameter("both", drawn({2 * kWidth, kWidth}))) {}
  // x and context are [rows, kWidth], mask is [rows, rows] bool. Returns a tensor [rows, kWidth]
  // and a scalar.
  std::pair<at::Tensor, at::Tensor> forward(at::Tensor x, const at::Tensor& context,
                                            const at::Tensor& mask, int heads) override {
    const auto keys_values = at::linear(context, both).chunk(2, 1);
    const auto scores = at::linear(x, query).mm(keys_values[0].t()) / heads;
    const auto weights = scores.masked_fill(mask, -1e9).softmax(1);
    return {x + weights.mm(keys_values[1]), weights.square().mean()};
  }
  at::Tensor query, both;  // [kWidth, kWidth], [2 kWidth, kWidth]
};

struct CrossNet : ModuleOf<std::pair<at::Tensor, at::Tensor>(const at::Tensor& x, bool twice)> {
  CrossNet() {
    encoder = register_parameter("encoder", drawn({kWidth, kWidth}));
    for (int i = 0; i < 3; ++i)
      blocks.push_back(register_module(std::to_string(i), std::make_shared<CrossBlock>()));
  }
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x, bool twice) override {
    const auto context = at::linear(x, encoder).tanh();
    const auto mask = at::ones({x.size(0), x.size(0)}, at::kBool).triu(1);
    at::Tensor y = x, aside = at::zeros({}), more;
    for (const auto& block : blocks) {
      for (int call = 0; call < (twice ? 2 : 1); ++call) {
        std::tie(y, more) = (*block)(y, context, mask, 3);
        aside = aside + more;
      }
    }
    return {y, aside};
  }
  at::Tensor encoder;  // [kWidth, kWidth]
  std::vector<std::shared_ptr<CrossBlock>> blocks;
};

// The state of a recurrent block.
struct State {
  at::Tensor hidden;
  std::optional<at::Tensor> cell;
  int64_t steps{};
  auto tensors() { return std::tie(hidden, cell); }
};

struct RecurrentBlock : ModuleOf<std::tuple<std::vector<at::Tensor>, State>(
                            const std::vector<at::Tensor>& rows, State state)> {
  RecurrentBlock() : weight(register_parameter("weight", drawn({kWidth, kWidth}))) {}
  std::tuple<std::vector<at::Tensor>, State> forward(const std::vector<at::Tensor>& rows,
                                                     State state) override {
    std::vector<at::Tensor> out;
    for (const at::Tensor& row : rows) {
      state.hidden = at::linear(row + state.hidden, weight).tanh();
      state.cell = state.cell ? *state.cell * 0.5 + state.hidden : state.hidden * 1;
      ++state.steps;
      out.push_back(*state.cell);
    }
    return {out, state};
  }
  at::Tensor weight;  // [kWidth, kWidth]
};

struct StatefulNet : Module {
  StatefulNet() {
    start = register_parameter("start", drawn({1, kWidth}));
    for (int i = 0; i < 2; ++i)
      blocks.push_back(register_module(std::to_string(i), std::make_shared<RecurrentBlock>()));
  }
  at::Tensor forward(at::Tensor x) override {
    std::vector<at::Tensor> rows = x.split(1);
    at::Tensor ends = at::zeros({});
    for (const auto& block : blocks) {
      State end;
      std::tie(rows, end) = (*block)(rows, {start, std::nullopt});
      ends = ends + end.hidden.sum() / end.steps;
    }
    return at::cat(rows).square().mean() + ends;
  }
  at::Tensor start;  // [1, kWidth]
  std::vector<std::shared_ptr<RecurrentBlock>> blocks;
};

// A block in a module holder.
struct HeldBlockImpl : Module {
  HeldBlockImpl() : weight(register_parameter("weight", drawn({kWidth, kWidth}))) {}
  at::Tensor forward(at::Tensor x) override { return x + at::linear(x, weight).tanh(); }
  at::Tensor weight;  // [kWidth, kWidth]
};
FSDP_MODULE(HeldBlock);

// A block that uses only classes of LibTorch, such as a block of another library.
struct TheirBlockImpl : torch::nn::Module {
  TheirBlockImpl() { linear = register_module("linear", torch::nn::Linear(kWidth, kWidth)); }
  at::Tensor forward(const at::Tensor& x) { return x + linear(x).relu(); }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(TheirBlock);

// A module of torch that returns a tuple. It is a unit, and the loss uses all that it returns.
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

// A function that returns the loss of `model` for `rows`. `odd` is true if the number of the
// microbatch plus the number of the step is odd.
template <class Model>
using LossOf = at::Tensor (*)(Model& model, const at::Tensor& rows, bool odd);

template <class Model>
Loss on_rows(LossOf<Model> loss) {
  return [loss](Module& model, int microbatch, int microbatches, int step) {
    return loss(dynamic_cast<Model&>(model),
                batch_part(microbatch, microbatches, step, {3, kWidth}),
                (microbatch + step) % 2 == 1);
  };
}

at::Tensor loss_of_both(CrossNet& net, const at::Tensor& rows, bool twice) {
  const auto [y, aside] = net(rows, twice);
  return y.square().mean() + aside;
}
at::Tensor loss_of_one(CrossNet& net, const at::Tensor& rows, bool odd) {
  const auto [y, aside] = net(rows, false);
  return odd ? aside : y.square().mean();
}

std::shared_ptr<Module> partly_frozen() {
  const auto net = std::make_shared<CrossNet>();
  for (const size_t i : {0, 2})
    for (const at::Tensor& parameter : net->blocks[i]->parameters())
      parameter.set_requires_grad(false);
  return net;
}
std::shared_ptr<Module> holders() {
  return std::make_shared<Sequential>(
      TheirBlock(), HeldBlock(), torch::nn::Tanh(),
      torch::nn::Sequential(TheirBlock(), torch::nn::Tanh(), HeldBlock()));
}
std::shared_ptr<Module> theirs() {
  return hookable(torch::nn::Sequential(torch::nn::Linear(kWidth, 5), torch::nn::Tanh(),
                                        torch::nn::Linear(5, kWidth)));
}

MULTI_RANK_SUITE(AnyShape);

MULTI_RANK_TEST(AnyShape, modules_with_any_inputs_and_outputs_end_with_the_bits_of_one_process) {
  const Loss of_rows = mean_square_of({3, kWidth});
  const auto once = [](CrossNet& net, const at::Tensor& rows, bool) {
    return loss_of_both(net, rows, false);
  };
  const auto twice = [](CrossNet& net, const at::Tensor& rows, bool) {
    return loss_of_both(net, rows, true);
  };
  std::vector<Training> all{
      {.name = "several inputs and outputs",
       .build = built<CrossNet>,
       .loss = on_rows<CrossNet>(once)},
      {.name = "two calls", .build = built<CrossNet>, .loss = on_rows<CrossNet>(twice)},
      {.name = "an output that some ranks leave out",
       .build = built<CrossNet>,
       .loss = on_rows(loss_of_one)},
      {.name = "frozen blocks", .build = partly_frozen, .loss = on_rows(loss_of_one)},
      {.name = "a list and a struct", .build = built<StatefulNet>, .loss = of_rows},
      {.name = "holders", .build = holders, .loss = of_rows},
      {.name = "a sequential of torch",
       .build = theirs,
       .loss = of_rows,
       .options = {.wrap = wrap_by_type("Linear")}},
      {.name = "an LSTM with all that it returns",
       .build = built<LstmNet>,
       .loss = of_rows,
       .options = {.wrap = wrap_by_type("LSTM")}}};
  expect_equal_to_one_process(world_size(), all);
  for (Training& training : all)
    training.options.reshard_after_forward = false;
  expect_equal_to_one_process(world_size(), all, {train_sharded});
}

MULTI_RANK_TEST(AnyShape, calling_the_wrapper_returns_the_results_of_the_wrapped_module) {
  run_ranks(world_size(), [](TestRank& rank) {
    const at::NoGradGuard no_grad;
    torch::manual_seed(3);
    CrossNet net;
    const at::Tensor rows = batch_part(0, 1, 0, {3, kWidth});
    const auto [y, aside] = net(rows, true);
    FullyShardedDataParallel model(net, rank.communicator());
    const std::pair<at::Tensor, at::Tensor> same = model(rows, true);
    EXPECT_TRUE(at::equal(same.first, y) && at::equal(same.second, aside));
    EXPECT_EQ(model.units().size(), 4U);
  });
}

}  // namespace
}  // namespace fsdp
