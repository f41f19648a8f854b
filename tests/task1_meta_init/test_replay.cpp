#include <meta_init.h>
#include <testing/multi_rank.h>
#include <testing/tensor_bits.h>

#include "constructions.h"

using namespace fsdp;

namespace {

namespace nn = torch::nn;

std::shared_ptr<nn::Module> whole_module(const Construct& construct) {
  std::shared_ptr<nn::Module> module;
  const DeferredInit init([&] { module = construct(); });
  init.materialize_module(*module);
  return module;
}

// The buffer that `make` makes, recorded and replayed.
at::Tensor replayed(const std::function<at::Tensor()>& make) {
  const auto module = whole_module(
      [&] { return std::make_shared<Holder>([&](Holder& self) { self.buffer("made", make()); }); });
  const at::Tensor made = module->buffers()[0];
  EXPECT_TRUE(made.is_cpu()) << "materialize_module() left a buffer on " << made.device();
  return made;
}

}  // namespace

TEST(T1_2_replay, data_of_another_shape_or_dtype_is_refused) {
  run_ranks(1, [](TestRank&) {
    EXPECT_THROW(assign_data(torch::empty({2, 3}, torch::kMeta), torch::zeros({3, 2})),
                 std::invalid_argument)
        << "data of [3, 2] took the place of [2, 3]";
    EXPECT_THROW(assign_data(torch::empty({2}, torch::kMeta), torch::zeros({2}, torch::kDouble)),
                 std::invalid_argument)
        << "data of Double took the place of Float";
  });
}

TEST(T1_2_replay, assign_data_puts_a_variable_on_the_memory_of_the_data) {
  run_ranks(1, [](TestRank&) {
    for (const auto device : {at::kMeta, at::kCPU}) {
      for (const bool requires_grad : {false, true}) {
        at::Tensor variable = torch::zeros({2, 3}, device);
        variable.set_requires_grad(requires_grad);
        const at::Tensor data = torch::arange(6.0F).view({3, 2}).t();
        assign_data(variable, data);
        ASSERT_TRUE(variable.is_cpu()) << "the Variable is on " << variable.device();
        EXPECT_TRUE(variable.is_alias_of(data)) << "the Variable has a copy of the data";
        EXPECT_EQ(values_of<float>(variable), (std::vector<float>{0, 2, 4, 1, 3, 5}));
        EXPECT_EQ(variable.strides(), data.strides());
        EXPECT_EQ(variable.requires_grad(), requires_grad);
        EXPECT_TRUE(variable.is_leaf());
      }
    }
  });
}

// The next three lead to what most of the later tests need.
TEST(T1_2_replay, a_call_that_was_recorded_with_device_meta_is_replayed_on_the_cpu) {
  run_ranks(1, [](TestRank&) {
    const at::Tensor full =
        replayed([] { return torch::full({3}, 2.5, torch::zeros({1}).device()); });
    EXPECT_EQ(values_of<float>(full), std::vector<float>(3, 2.5));
  });
}

TEST(T1_2_replay, operations_are_replayed_in_order_with_what_they_need) {
  run_ranks(1, [](TestRank&) {
    const at::Tensor made = replayed([] { return torch::zeros({4}).add_(1).mul_(2) + 3; });
    EXPECT_EQ(values_of<float>(made), std::vector<float>(4, 5))
        << "the constructor calls zeros(), add_(1), mul_(2) and + 3";
  });
}

// One process replays everything at once and in order.
TEST(T1_2_replay, the_replay_draws_the_numbers_that_eager_construction_draws) {
  run_ranks(1, [](TestRank&) {
    const auto seeded = [](const std::function<std::shared_ptr<nn::Module>()>& make) {
      torch::manual_seed(test_seed(23));
      const auto buffers = make()->buffers();
      return std::vector<at::Tensor>{buffers[0], buffers[1], torch::rand({4})};
    };
    const Construct construct = [] {
      return std::make_shared<Holder>([](Holder& self) {
        self.buffer("first", torch::rand({4}));
        self.buffer("second", torch::rand({4}));
      });
    };
    const auto eager = seeded(construct);
    const auto deferred = seeded([&] { return whole_module(construct); });
    EXPECT_FALSE(same_bits(deferred[1], deferred[0]))
        << "both buffers were drawn from the same state of the generator";
    EXPECT_TRUE(same_bits(deferred[0], eager[0]))
        << "the first buffer has other numbers: the generator was not where it was when the "
           "constructor drew it";
    EXPECT_TRUE(same_bits(deferred[1], eager[1]))
        << "the second buffer has other numbers than in eager construction";
    EXPECT_TRUE(same_bits(deferred[2], eager[2]))
        << "what is drawn after the construction differs: the generator is not where eager "
           "construction leaves it";
  });
}

TEST(T1_2_replay, buffers_may_be_computed_from_other_tensors) {
  expect_as_eager(
      {holder("rotary",
              [](Holder& self) {
                const auto frequency = 1.0 / torch::pow(10'000.0, torch::arange(0, 8, 2) / 8.0);
                const auto angle = torch::outer(torch::arange(5), frequency);
                self.buffer("cos", angle.cos());
                self.buffer("both", torch::cat({angle.cos(), angle.sin()}, 1));
                self.buffer("parts", torch::stack(angle.split(2, 1)));
                self.buffer("on its device", torch::full({3}, 2.0, angle.device()));
              }),
       holder("mask",
              [](Holder& self) {
                self.buffer("causal", torch::triu(torch::full({5, 5}, -INFINITY), 1));
                self.buffer("table", torch::tensor({{1, 2}, {3, 4}}));
                self.buffer("values", torch::tensor(std::vector<float>{1, 2.5, -3}));
                self.buffer("scalar", torch::tensor(3, torch::kLong));
              }),
       holder("clone",
              [](Holder& self) {
                const at::Tensor weight = self.parameter("weight", torch::randn({3, 3}));
                self.buffer("initial", weight.detach().clone());
                at::NoGradGuard no_grad;
                weight.add_(1);
              })},
      whole_module);
}

TEST(T1_2_replay, replay_uses_the_values_that_outside_tensors_had_when_recorded) {
  run_ranks(1, [](TestRank&) {
    at::Tensor outside = torch::arange(6.0F);
    std::vector<float> values{1, 2, 3};
    std::shared_ptr<Holder> module;
    const DeferredInit init([&] {
      module = std::make_shared<Holder>([&](Holder& self) {
        self.buffer("one more", torch::ones({6}) + outside);
        outside.mul_(10);
        self.buffer("tenfold, doubled", torch::full({6}, 2.0F) * outside);
        self.buffer("in a list", torch::cat({outside, torch::ones({1})}));
        self.buffer("of a vector", torch::ones({3}).mul_(torch::from_blob(values.data(), {3})));
      });
    });
    EXPECT_EQ(values_of<float>(outside), (std::vector<float>{0, 10, 20, 30, 40, 50}));
    outside.fill_(-1);
    outside.reset();
    values.assign(3, NAN);
    init.materialize_module(*module);
    const auto expect = [&](const std::string& name, const std::vector<float>& expected) {
      const at::Tensor actual = module->named_buffers()[name];
      ASSERT_TRUE(actual.is_cpu()) << "buffer '" << name << "' is still on " << actual.device();
      EXPECT_EQ(values_of<float>(actual), expected)
          << "buffer '" << name << "', computed from a tensor made before";
    };
    expect("one more", {1, 2, 3, 4, 5, 6});
    expect("tenfold, doubled", {0, 20, 40, 60, 80, 100});
    expect("in a list", {0, 10, 20, 30, 40, 50, 1});
    expect("of a vector", {1, 2, 3});
  });
}

TEST(T1_2_replay, every_holder_of_a_parameter_sees_it_materialized) {
  run_ranks(1, [](TestRank&) {
    nn::Linear linear{nullptr};
    const DeferredInit init([&] { linear = nn::Linear(4, 3); });
    const std::vector<at::Tensor> held = linear->parameters();  // as an optimizer holds them
    init.materialize_module(*linear);
    for (size_t i = 0; i < held.size(); ++i) {
      ASSERT_TRUE(held[i].is_cpu()) << "parameter " << i << " is on " << held[i].device();
      EXPECT_TRUE(held[i].is_same(linear->parameters()[i])) << "parameter " << i;
      EXPECT_TRUE(held[i].is_leaf() && held[i].requires_grad()) << "parameter " << i;
    }

    linear(torch::ones({2, 4})).sum().backward();
    const at::Tensor output = linear(torch::ones({1, 4})).detach();
    at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : held)
      parameter.sub_(parameter.grad());  // 2 in each element
    const at::Tensor change = output - linear(torch::ones({1, 4}));
    EXPECT_TRUE(torch::allclose(change, torch::full({1, 3}, 10.0))) << change;
  });
}

TEST(T1_2_replay, what_is_not_recorded_or_not_registered_stays_as_it_is) {
  run_ranks(1, [](TestRank&) {
    const at::Tensor outside = torch::ones({3});
    const void* memory = outside.const_data_ptr();
    std::shared_ptr<Holder> module;
    at::Tensor unregistered;
    const DeferredInit init([&] {
      module = std::make_shared<Holder>([&](Holder& self) {
        unregistered = torch::ones({4});
        self.buffer("outside", outside);
        self.parameter("weight", unregistered * 2);
      });
    });
    init.materialize_module(*module);
    EXPECT_EQ(module->buffers()[0].const_data_ptr(), memory)
        << "a buffer that was made before the recording has other memory now";
    EXPECT_TRUE(unregistered.is_meta())
        << "a tensor that the module has not registered is on " << unregistered.device();
    module->parameters()[0].detach().fill_(5);
    init.materialize_module(*module);
    EXPECT_EQ(values_of<float>(module->parameters()[0]), std::vector<float>(4, 5))
        << "the weight was filled with 5, then the module was materialized again";
  });
}

TEST(T1_2_replay, a_tensor_may_change_its_storage_or_its_sizes) {
  expect_as_eager({holder("memory changed by set_data()",
                          [](Holder& self) {
                            at::Tensor weight = self.parameter("weight", torch::randn({3, 2}));
                            at::NoGradGuard no_grad;
                            weight.add_(1);
                            self.buffer("old", weight.detach());
                            weight.set_data(torch::randn({4, 4}));
                            weight.mul_(2);
                          }),
                   holder("sizes changed in place",
                          [](Holder& self) {
                            at::Tensor transposed = torch::randn({3, 2});
                            transposed.t_();
                            transposed.add_(torch::arange(3));
                            self.buffer("transposed", transposed);
                            at::Tensor resized = torch::zeros({2});
                            resized.resize_({3, 3}).fill_(4);
                            self.buffer("resized", resized);
                            at::Tensor set = torch::empty({0});
                            set.set_(resized);
                            set[0].fill_(1);
                            self.buffer("set", set);
                          })},
                  whole_module);
}

TEST(T1_2_replay, writing_through_a_view_changes_its_base) {
  expect_as_eager({holder("views",
                          [](Holder& self) {
                            at::Tensor weight = self.parameter("weight", torch::randn({6, 4}));
                            at::NoGradGuard no_grad;
                            weight.narrow(0, 1, 2).fill_(3);
                            weight.t()[2].normal_();
                            weight[5].zero_();
                            weight.view({-1}).narrow(0, 0, 3).copy_(torch::arange(3));
                            weight.index_put_({torch::indexing::Slice(3, 5), 0}, 7);
                            at::Tensor gathered = torch::empty({4});
                            torch::sum_out(gathered, weight, 0);
                            self.buffer("sums", gathered);
                          })},
                  whole_module);
}

TEST(T1_2_replay, an_initialization_at_the_end_of_the_constructor_is_replayed) {
  expect_as_eager({holder("reinitialized",
                          [](Holder& self) {
                            self.register_module("a", nn::Linear(6, 5));
                            self.register_module("b", nn::Linear(5, 4));
                            at::NoGradGuard no_grad;
                            for (at::Tensor& p : self.parameters())
                              p.normal_(0, 0.02);
                            self.parameters()[0].mul_(0.5);
                          })},
                  whole_module);
}

TEST(T1_2_replay, shared_tensors_and_storages_stay_shared) {
  expect_as_eager({holder("tied",
                          [](Holder& self) {
                            const auto first = self.register_module("first", nn::Linear(7, 4));
                            self.register_module("head",
                                                 std::make_shared<Holder>([&](Holder& head) {
                                                   head.parameter("weight", first->weight);
                                                 }));
                          }),
                   holder("one Variable, two names",
                          [](Holder& self) {
                            const at::Tensor weight = self.parameter("a", torch::randn({4, 3}));
                            self.parameter("b", weight);
                          }),
                   holder("views of one buffer",
                          [](Holder& self) {
                            const at::Tensor all = torch::randn({8});
                            self.buffer("all", all);
                            self.buffer("second half", all.narrow(0, 4, 4));
                            self.buffer("transposed", all.view({4, 2}).t());
                          })},
                  whole_module);
}

TEST(T1_2_replay, random_initializations_equal_eager_ones_bit_by_bit) {
  expect_as_eager(init_functions(), whole_module);
}

TEST(T1_2_replay, modules_of_torch_equal_eager_ones_bit_by_bit) {
  expect_as_eager(modules_of_torch(), whole_module);
}

TEST(T1_2_replay, a_materialized_module_computes_what_an_eager_one_computes) {
  const auto compute = [](TestRank& rank, const auto& make) {
    torch::manual_seed(test_seed(3));
    const auto module = make(transformer_layer(16));
    const at::Tensor output = run_layer(*module, torch::randn({5, 2, 16}));
    output.square().sum().backward();
    rank.observe("output", output);
    for (const auto& item : module->named_parameters())
      rank.observe("gradient of " + item.key(), item.value().grad());
  };
  const RankRun eager = run_oracle([&](TestRank& rank) {
    compute(rank, [](const Construct& construct) { return construct(); });
  });
  const RankRun run = run_ranks(1, [&](TestRank& rank) { compute(rank, whole_module); });
  for (const std::string name :
       {"output", "gradient of self_attn.in_proj_weight", "gradient of linear1.bias"})
    expect_on_rank(run, 0, name, eager.at(0, name));
}
