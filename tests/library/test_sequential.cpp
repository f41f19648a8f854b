#include <check_hookable.h>
#include <gtest/gtest.h>
#include <module_holder.h>
#include <sequential.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/rnn.h>

#include <string>
#include <vector>

#include <common/expect_text.h>
#include <common/hook_events.h>
#include <common/in_a_process.h>

// Modules that are held, chained, or were built elsewhere.
namespace fsdp {
namespace {

struct KeptBlockImpl : Module {
  explicit KeptBlockImpl(int64_t width)
      : weight(register_parameter("weight", at::full({width, width}, 0.5))) {}
  at::Tensor forward(at::Tensor x) override { return at::linear(x, weight); }
  at::Tensor weight;  // [width, width]
};
FSDP_MODULE(KeptBlock);

struct ScaledImpl : ModuleOf<std::pair<at::Tensor, double>(const at::Tensor& x, double by)> {
  std::pair<at::Tensor, double> forward(const at::Tensor& x, double by) override {
    return {x * by, by};
  }
};
FSDP_MODULE(Scaled);

at::Tensor row() {
  return at::ones({1, 3}).set_requires_grad(true);
}

// "forward" at each call of the module that runs its hooks.
void note_forward(Module& module, Events& events) {
  module.register_forward_pre_hook([&](Module&, const at::Tensor&) {
    events.push_back("forward");
    return at::Tensor();
  });
}

TEST(ModuleHolder, may_hold_a_module_of_any_shape_and_runs_its_hooks) {
  in_a_process([] {
    Events events;
    Scaled scaled;
    note_backward(*scaled, events);
    const auto [x, by] = scaled(row(), 3);
    EXPECT_EQ(by, 3);
    x.sum().backward();
    EXPECT_EQ(events, (Events{"opens", "closes"}));
  });
}

TEST(ModuleHolder, the_class_of_its_module_is_named_without_impl) {
  in_a_process([] {
    EXPECT_EQ(KeptBlock(3)->name(), "fsdp::(anonymous namespace)::KeptBlock");
    struct Impl : KeptBlockImpl {
      using KeptBlockImpl::KeptBlockImpl;
    };
    EXPECT_TRUE(Impl(3).name().ends_with("::Impl")) << Impl(3).name();
  });
}

TEST_IN_A_PROCESS(ModuleHolder, may_be_registered_and_be_empty) {
  struct Net : Module {
    at::Tensor forward(at::Tensor x) override { return block(x); }
    KeptBlock block = register_module("block", KeptBlock(3));
  } net;
  Events events;
  note_backward(*net.block, events);
  EXPECT_EQ(net.named_parameters().keys(), std::vector<std::string>{"block.weight"});
  net(row()).sum().backward();
  EXPECT_EQ(events, (Events{"opens", "closes"}));
  EXPECT_TRUE(KeptBlock(nullptr).is_empty());
}

using Keys = std::vector<std::string>;

TEST(Sequential, calls_its_modules_in_turn_with_their_hooks) {
  in_a_process([] {
    Events events;
    KeptBlock block(3);
    const auto shared = std::make_shared<KeptBlockImpl>(3);
    Sequential chain(torch::nn::Linear(3, 3), block, torch::nn::Tanh(), shared);
    note_backward(*block, events);
    note_backward(*shared, events);
    const auto x = row();
    const auto y = chain(x);
    const auto linear = chain.parameters();
    const auto expected = at::linear(
        at::linear(at::linear(x, linear[0], linear[1]), block->weight).tanh(), shared->weight);
    EXPECT_TRUE(at::equal(y, expected));
    y.sum().backward();
    EXPECT_EQ(events, (Events{"opens", "closes", "opens", "closes"}));
  });
}

TEST_IN_A_PROCESS(Sequential, returns_its_input_if_it_has_no_module) {
  Sequential none;
  const auto x = row();
  EXPECT_TRUE(none(x).is_same(x));
}

TEST(Sequential, gives_its_modules_the_names_of_torchs) {
  in_a_process([] {
    const torch::nn::Sequential theirs(torch::nn::Linear(3, 3), torch::nn::Tanh(),
                                       torch::nn::Linear(3, 2));
    const Sequential ours(torch::nn::Linear(3, 3), torch::nn::Tanh(), torch::nn::Linear(3, 2));
    EXPECT_EQ(ours.named_parameters().keys(), theirs->named_parameters().keys());
    EXPECT_EQ(ours.named_children().keys(), (Keys{"0", "1", "2"}));
    Sequential named;
    named.push_back("first", torch::nn::Linear(3, 3));
    named.push_back(KeptBlock(3));
    EXPECT_EQ(named.named_parameters().keys(), (Keys{"first.weight", "first.bias", "1.weight"}));
  });
}

TEST(Sequential, is_made_of_one_of_torchs_that_was_built_elsewhere) {
  in_a_process([] {
    torch::nn::Sequential theirs;
    theirs->push_back("in", torch::nn::Linear(3, 3));
    theirs->push_back(KeptBlock(3));
    const auto ours = hookable(theirs);
    EXPECT_TRUE(at::equal((*ours)(row()), theirs->forward(row())));
    EXPECT_EQ(ours->named_parameters().keys(), theirs->named_parameters().keys());
    Events events;
    for (const auto& child : ours->children())
      note_forward(dynamic_cast<Module&>(*child), events);
    (*ours)(row());
    EXPECT_EQ(events, (Events{"forward", "forward"}));
  });
}

TEST(Hookable, has_the_tensors_and_names_of_what_it_calls) {
  in_a_process([] {
    struct Theirs : torch::nn::Module {
      Theirs() {
        scale = register_parameter("scale", at::full({3}, 2.0));
        frozen = register_parameter("frozen", at::ones({3}), /*requires_grad=*/false);
        steps = register_buffer("steps", at::zeros({}));
        inner = register_module("inner", torch::nn::Linear(3, 3));
      }
      at::Tensor forward(const at::Tensor& x) {
        steps += 1;
        return inner(x) * scale + frozen;
      }
      at::Tensor scale, frozen, steps;  // [3], [3], []
      torch::nn::Linear inner{nullptr};
    };
    const auto theirs = std::make_shared<Theirs>();
    const std::shared_ptr<Module> ours = hookable(theirs);
    EXPECT_EQ(ours->named_parameters().keys(), theirs->named_parameters().keys());
    EXPECT_EQ(ours->named_buffers().keys(), theirs->named_buffers().keys());
    EXPECT_EQ(ours->name(), theirs->name());
    EXPECT_FALSE(theirs->frozen.requires_grad());
    Events events;
    note_backward(*ours, events);
    const auto x = row();
    (*ours)(x).sum().backward();
    EXPECT_EQ(events, (Events{"opens", "closes"}));
    EXPECT_TRUE(ours->named_parameters()["scale"].grad().is_same(theirs->scale.grad()));
    EXPECT_EQ(ours->named_buffers()["steps"].item<int>(), 1);
  });
}

TEST(Hookable, trains_and_moves_what_it_calls) {
  in_a_process([] {
    const torch::nn::BatchNorm1d theirs(3);
    const auto ours = hookable(theirs);
    ours->eval();
    EXPECT_FALSE(theirs->is_training());
    ours->train();
    EXPECT_TRUE(theirs->is_training());
    const auto recurrent = hookable(torch::nn::LSTM(3, 2));
    recurrent->to(at::kDouble);
    const auto x = at::ones({4, 1, 3}, at::kDouble);
    EXPECT_EQ(std::get<0>((*recurrent)(x, std::nullopt)).scalar_type(), at::kDouble);
  });
}

TEST(Hookable, an_embedding_of_torch_reads_nothing_in_backward) {
  in_a_process([] {
    EXPECT_FALSE(hookable(torch::nn::Embedding(5, 3))->reads_parameters_in_backward());
    EXPECT_TRUE(hookable(torch::nn::Linear(5, 3))->reads_parameters_in_backward());
  });
}

TEST_IN_A_PROCESS(Hookable, takes_a_signature_where_forward_has_defaults) {
  using States = std::tuple<at::Tensor, std::tuple<at::Tensor, at::Tensor>>;
  Events events;
  const auto lstm = hookable<States(const at::Tensor&)>(torch::nn::LSTM(3, 2));
  note_backward(*lstm, events);
  const auto [out, state] = (*lstm)(at::ones({4, 1, 3}).set_requires_grad(true));
  EXPECT_EQ(out.sizes(), (at::IntArrayRef{4, 1, 2}));
  (out.sum() + std::get<1>(state).sum()).backward();
  EXPECT_EQ(events, (Events{"opens", "closes"}));
}

TEST(Hookable, a_module_is_itself) {
  in_a_process([] {
    const auto block = std::make_shared<KeptBlockImpl>(3);
    EXPECT_EQ(hookable(block), block);
    EXPECT_EQ(hookable(KeptBlock(block)), block);
    EXPECT_EQ(hookable(torch::nn::AnyModule(block)), block);
  });
}

// A block in each kind of container.
struct ContainersNet : Module {
  struct Around : torch::nn::Module {
    Around() { block = register_module("block", KeptBlock(3)); }
    at::Tensor forward(at::Tensor x) { return block(x); }
    KeptBlock block{nullptr};
  };
  ContainersNet() {
    list = register_module("list", torch::nn::ModuleList(KeptBlock(3)));
    chain = register_module("chain", std::make_shared<Sequential>(KeptBlock(3)));
    // The block is called by the module around it.
    theirs = register_module("theirs", torch::nn::Sequential(std::make_shared<Around>()));
  }
  at::Tensor forward(at::Tensor x) override { return x; }
  torch::nn::ModuleList list{nullptr};
  std::shared_ptr<Sequential> chain;
  torch::nn::Sequential theirs{nullptr};
};

TEST_IN_A_PROCESS(CheckHookable, names_the_one_block_whose_hooks_a_container_passes_by) {
  ContainersNet net;
  check_hookable(net);  // throws nothing
  KeptBlock passed_by(3);
  net.theirs->push_back(passed_by);
  const std::string says =
      "theirs.1 (fsdp::(anonymous namespace)::KeptBlock) lies in a torch::nn::Sequential, which "
      "calls forward() and so runs no hooks; use an fsdp::Sequential";
  EXPECT_CONTAINS(error_of<std::invalid_argument>([&] { check_hookable(net); }), says);
  const std::vector<Module*> units{passed_by.get()};
  EXPECT_CONTAINS(error_of<std::invalid_argument>([&] { check_hookable(net, units); }), says);
  check_hookable(net, {});  // it need not be a unit
}

}  // namespace
}  // namespace fsdp
