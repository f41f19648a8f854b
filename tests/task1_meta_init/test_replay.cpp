#include <meta_init.h>

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

// Records and replays a construction that registers the tensor of `make` as a buffer. Expects that
// the buffer then has the values `expected`.
void expect_replayed(const std::string& calls, const std::vector<float>& expected,
                     const std::function<at::Tensor()>& make) {
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    const Construct construct =
        holder("", [&](Holder& self) { self.buffer("made", make()); }).construct;
    rank.observe("a buffer made by " + calls, numbers_of(whole_module(construct)->buffers()[0]));
  });
  expect_on_all_ranks(run, "a buffer made by " + calls, expected);
}

}  // namespace

TEST(T1_2_replay, assign_data_throws_for_data_of_another_shape_or_dtype) {
  const std::string shape = "data of [3, 2] took the place of [2, 3], unless this is thrown",
                    dtype = "data of Double took the place of Float, unless this is thrown";
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    const auto assign = [](at::IntArrayRef sizes, const at::Tensor& data) {
      return thrown_by([&] { assign_data(torch::empty(sizes, torch::kMeta), data); });
    };
    rank.observe(shape, assign({2, 3}, torch::zeros({3, 2})));
    rank.observe(dtype, assign({2}, torch::zeros({2}, torch::kDouble)));
  });
  expect_error(run, shape, {"std::invalid_argument"});
  expect_error(run, dtype, {"std::invalid_argument"});
}

TEST(T1_2_replay, assign_data_makes_a_variable_use_the_memory_of_the_given_tensor) {
  for (const auto device : {at::kMeta, at::kCPU}) {
    for (const bool requires_grad : {false, true}) {
      const RankRun run = run_ranks(1, [&](TestRank& rank) {
        at::Tensor variable = torch::zeros({2, 3}, device);
        variable.set_requires_grad(requires_grad);
        const at::Tensor data = torch::arange(6.0F).view({3, 2}).t();
        assign_data(variable, data);
        rank.observe("the Variable's values", numbers_of(variable));
        rank.observe("the Variable has a copy of the data", !variable.is_alias_of(data));
        rank.observe("strides", variable.strides().vec());
        rank.observe("requires_grad", variable.requires_grad());
        rank.observe("a leaf", variable.is_leaf());
      });
      expect_on_all_ranks(run, {{"the Variable's values", {0, 2, 4, 1, 3, 5}},
                                {"the Variable has a copy of the data", false},
                                {"strides", {1, 2}},
                                {"requires_grad", requires_grad},
                                {"a leaf", true}});
    }
  }
}

// Most of the later tests in this file need what this test and the next two tests check.
TEST(T1_2_replay, a_call_that_was_recorded_with_device_meta_is_replayed_on_the_cpu) {
  expect_replayed("full() on the device of a recorded tensor", std::vector<float>(3, 2.5),
                  [] { return torch::full({3}, 2.5, torch::zeros({1}).device()); });
}

TEST(T1_2_replay, replay_runs_the_recorded_operations_in_order_with_their_inputs) {
  expect_replayed("zeros(), add_(1), mul_(2) and + 3", std::vector<float>(4, 5),
                  [] { return torch::zeros({4}).add_(1).mul_(2) + 3; });
}

// In this test, one process replays the whole construction, in the recorded order.
TEST(T1_2_replay, the_replay_draws_the_numbers_that_eager_construction_draws) {
  const std::string first =
                        "the first buffer; if it has other numbers, the generator was not where "
                        "it was when the constructor drew it",
                    second = "the second buffer, drawn where the first draw left the generator",
                    after =
                        "what is drawn after the construction, where eager construction leaves "
                        "the generator";
  const auto seeded = [&](TestRank& rank, const auto& make) {
    torch::manual_seed(test_seed(23));
    const auto buffers = make([] {
                           return std::make_shared<Holder>([](Holder& self) {
                             self.buffer("first", torch::rand({4}));
                             self.buffer("second", torch::rand({4}));
                           });
                         })->buffers();
    rank.observe(first, buffers[0]);
    rank.observe(second, buffers[1]);
    rank.observe(after, torch::rand({4}));
  };
  const auto eager = [](const Construct& construct) { return construct(); };
  expect_as(run_ranks(1, [&](TestRank& rank) { seeded(rank, whole_module); }),
            run_oracle([&](TestRank& rank) { seeded(rank, eager); }));
}

TEST(T1_2_replay, replay_computes_buffers_that_depend_on_other_recorded_tensors) {
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
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    at::Tensor outside = torch::arange(6.0F), columns = torch::arange(6.0F).view({3, 2}).t();
    std::vector<float> values{1, 2, 3};
    std::shared_ptr<Holder> module;
    const DeferredInit init([&] {
      module = std::make_shared<Holder>([&](Holder& self) {
        self.buffer("one more", torch::ones({6}) + outside);
        outside.mul_(10);
        self.buffer("tenfold, doubled", torch::full({6}, 2.0F) * outside);
        self.buffer("in a list", torch::cat({outside, torch::ones({1})}));
        self.buffer("of columns", columns * torch::ones({}));
        self.buffer("of a vector", torch::ones({3}).mul_(torch::from_blob(values.data(), {3})));
      });
    });
    rank.observe("the tensor made before, multiplied by 10", numbers_of(outside));
    outside.fill_(-1);
    columns.fill_(-1);
    outside.reset();
    values.assign(3, NAN);
    init.materialize_module(*module);
    for (const auto& buffer : module->named_buffers())
      rank.observe("buffer '" + buffer.key() + "', computed from a tensor made before",
                   numbers_of(buffer.value()));
  });
  const auto buffer = [](const std::string& name) {
    return "buffer '" + name + "', computed from a tensor made before";
  };
  expect_on_all_ranks(run, {{"the tensor made before, multiplied by 10", {0, 10, 20, 30, 40, 50}},
                            {buffer("one more"), {1, 2, 3, 4, 5, 6}},
                            {buffer("tenfold, doubled"), {0, 20, 40, 60, 80, 100}},
                            {buffer("in a list"), {0, 10, 20, 30, 40, 50, 1}},
                            {buffer("of columns"), {0, 2, 4, 1, 3, 5}},
                            {buffer("of a vector"), {1, 2, 3}}});
}

TEST(T1_2_replay, a_copy_of_the_parameter_list_sees_materialized_parameters) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    nn::Linear linear{nullptr};
    const DeferredInit init([&] { linear = nn::Linear(4, 3); });
    // Copies of the at::Tensor handles of the parameters, as an optimizer holds them.
    const std::vector<at::Tensor> held = linear->parameters();
    init.materialize_module(*linear);
    std::vector<std::string> seen;
    for (size_t i = 0; i < held.size(); ++i)
      seen.push_back(device_name(held[i]) +
                     (held[i].is_same(linear->parameters()[i]) ? ", same" : "") +
                     (held[i].is_leaf() && held[i].requires_grad() ? ", leaf" : ""));
    rank.observe("each parameter as its holder sees it", seen);
    linear(torch::ones({2, 4})).sum().backward();
    const at::Tensor output = linear(torch::ones({1, 4})).detach();
    at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : held)
      parameter.sub_(parameter.grad());  // each element of the gradient is 2
    rank.observe("change", numbers_of(output - linear(torch::ones({1, 4}))));
  });
  expect_on_all_ranks(run, "each parameter as its holder sees it",
                      nlohmann::json(2, "cpu, same, leaf"));
  for (const double change : run.at(0, "change"))
    EXPECT_NEAR(change, 10, 1e-4) << "what the output changes by as the holder changes parameters";
  EXPECT_EQ(run.at(0, "change").size(), 3);
}

TEST(T1_2_replay, materialize_module_changes_no_unrecorded_or_unregistered_tensor) {
  const std::string moved = "a buffer that was made before the recording has other memory now",
                    unregistered = "a tensor that the module has not registered is on",
                    weight = "the weight, filled with 5, after the module was materialized again";
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    const at::Tensor outside = torch::ones({3});
    const void* memory = outside.const_data_ptr();
    std::shared_ptr<Holder> module;
    at::Tensor ones;
    const DeferredInit init([&] {
      module = std::make_shared<Holder>([&](Holder& self) {
        ones = torch::ones({4});
        self.buffer("outside", outside);
        self.parameter("weight", ones * 2);
      });
    });
    init.materialize_module(*module);
    rank.observe(moved, module->buffers()[0].const_data_ptr() != memory);
    rank.observe(unregistered, device_name(ones));
    module->parameters()[0].detach().fill_(5);
    init.materialize_module(*module);
    rank.observe(weight, numbers_of(module->parameters()[0]));
  });
  expect_on_all_ranks(run,
                      {{moved, false}, {unregistered, "meta"}, {weight, std::vector<float>(4, 5)}});
}

TEST(T1_2_replay, replay_handles_set_data_and_size_changes_in_a_constructor) {
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

TEST(T1_2_replay, replay_of_a_write_through_a_view_changes_the_base) {
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

TEST(T1_2_replay, replay_includes_an_initialization_at_the_end_of_the_constructor) {
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

TEST(T1_2_replay, replay_keeps_tensors_and_storages_shared) {
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

TEST(T1_2_replay, replayed_random_initializations_equal_eager_ones_bit_by_bit) {
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
  expect_as(run, eager);
}
