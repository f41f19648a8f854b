#include <ATen/CPUGeneratorImpl.h>
#include <memory/live_bytes.h>
#include <meta_init.h>
#include <testing/multi_rank.h>
#include <testing/tensor_bits.h>

#include "constructions.h"

using namespace fsdp;

namespace {

namespace nn = torch::nn;

// Each tensor alone, the last first, with other random numbers drawn in between.
std::shared_ptr<nn::Module> backward_one_by_one(const Construct& construct) {
  std::shared_ptr<nn::Module> module;
  const DeferredInit init([&] { module = construct(); });
  auto generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor state = generator.get_state();
  auto tensors = tensors_of(*module);
  for (auto tensor = tensors.rbegin(); tensor != tensors.rend(); ++tensor) {
    torch::rand({5});
    assign_data(*tensor, init.materialize_tensor(*tensor));
  }
  generator.set_state(state);
  return module;
}

// A model that initializes all of itself again at the end of its constructor.
struct Reinitialized : nn::Module {
  static constexpr int64_t kLayers = 8;
  static constexpr int64_t kWidth = 128;

  Reinitialized() {
    for (int64_t i = 0; i < kLayers; ++i)
      register_module("layer" + std::to_string(i), nn::Linear(kWidth, kWidth));
    at::NoGradGuard no_grad;
    for (at::Tensor& parameter : parameters())
      parameter.normal_(0, 0.02);
  }
};

}  // namespace

TEST(T1_3_bounded_replay, materialize_tensor_leaves_the_module_on_the_meta_device) {
  run_ranks(1, [](TestRank&) {
    nn::Linear linear{nullptr}, other{nullptr};
    const DeferredInit init([&] { linear = nn::Linear(5, 4); });
    const DeferredInit of_other([&] { other = nn::Linear(5, 4); });
    const at::Tensor weight = init.materialize_tensor(linear->weight);
    EXPECT_TRUE(weight.is_cpu()) << "what was returned is on " << weight.device();
    EXPECT_TRUE(linear->weight.is_meta() && linear->bias.is_meta());
    EXPECT_TRUE(same_bits(weight, init.materialize_tensor(linear->weight)));
    const at::Tensor outside = torch::ones({3});
    EXPECT_TRUE(init.materialize_tensor(outside).is_same(outside))
        << "a tensor with values, which was not recorded, was not returned unchanged";
    EXPECT_TRUE(init.materialize_tensor(other->weight).is_same(other->weight))
        << "a tensor of another recording was not returned unchanged";
  });
}

TEST(T1_3_bounded_replay, what_is_materialized_shares_memory_with_nothing) {
  run_ranks(1, [](TestRank&) {
    nn::Linear linear{nullptr};
    at::Tensor detached;
    const DeferredInit init([&] {
      linear = nn::Linear(5, 4);
      detached = linear->weight.detach();
    });
    const at::Tensor first = init.materialize_tensor(linear->weight);
    const auto values = bytes_of(first);
    first.fill_(-1);
    const at::Tensor second = init.materialize_tensor(linear->weight);
    EXPECT_TRUE(bytes_of(second) == values)
        << "the first result, which is alive, was filled with -1; the second is\n"
        << second;
    init.materialize_module(*linear);
    linear->weight.detach().fill_(-2);
    const at::Tensor third = init.materialize_tensor(detached);
    EXPECT_TRUE(bytes_of(third) == values)
        << "the module's weight was filled with -2; the weight materialized alone is\n"
        << third;
  });
}

TEST(T1_3_bounded_replay, changing_a_materialized_tensor_does_not_change_the_next_replay) {
  run_ranks(1, [](TestRank&) {
    const at::Tensor outside = torch::arange(6);
    at::Tensor view, set;
    const DeferredInit init([&] {
      view = outside.view_as(torch::zeros({2, 3}));
      set = torch::empty({0}, torch::kLong);
      set.set_(outside);
    });
    for (const at::Tensor& tensor : {view, set}) {
      const at::Tensor first = init.materialize_tensor(tensor).fill_(-1);
      const at::Tensor again = init.materialize_tensor(tensor);
      EXPECT_EQ(values_of<int64_t>(again), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}))
          << "the first result was filled with -1, then the tensor was materialized again";
    }
    EXPECT_EQ(values_of<int64_t>(outside), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  });
}

TEST(T1_3_bounded_replay, random_numbers_drawn_later_equal_those_after_eager_construction) {
  const RankRun eager = run_oracle([](TestRank& rank) {
    torch::manual_seed(test_seed(11));
    const nn::Linear linear(30, 20);
    rank.observe("random numbers drawn after construction", torch::rand({4}));
    rank.observe("random numbers drawn after materializing", torch::randn({20}));
  });
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    torch::manual_seed(test_seed(11));
    nn::Linear linear{nullptr};
    const DeferredInit init([&] { linear = nn::Linear(30, 20); });
    rank.observe("random numbers drawn after construction", torch::rand({4}));
    EXPECT_TRUE(init.materialize_tensor(linear->bias).is_cpu());
    init.materialize_module(*linear);
    rank.observe("random numbers drawn after materializing", torch::randn({20}));
  });
  for (const std::string name :
       {"random numbers drawn after construction", "random numbers drawn after materializing"})
    expect_on_rank(run, 0, name, eager.at(0, name));
}

TEST(T1_3_bounded_replay, a_generator_of_the_caller_is_left_as_after_eager_construction) {
  const RankRun eager = run_oracle([](TestRank& rank) {
    auto own = at::make_generator<at::CPUGeneratorImpl>(test_seed(13));
    rank.observe("weight", torch::empty({30}).normal_(0, 1, own));
    rank.observe("random numbers drawn after construction", torch::rand({4}, own));
    rank.observe("random numbers drawn after materializing", torch::rand({4}, own));
  });
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    auto own = at::make_generator<at::CPUGeneratorImpl>(test_seed(13));
    at::Tensor weight;
    const DeferredInit init([&] { weight = torch::empty({30}).normal_(0, 1, own); });
    rank.observe("random numbers drawn after construction", torch::rand({4}, own));
    rank.observe("weight", init.materialize_tensor(weight));
    rank.observe("random numbers drawn after materializing", torch::rand({4}, own));
  });
  for (const std::string name : {"weight", "random numbers drawn after construction",
                                 "random numbers drawn after materializing"})
    expect_on_rank(run, 0, name, eager.at(0, name));
}

TEST(T1_3_bounded_replay, at_most_one_tensor_is_alive_at_a_time) {
  run_ranks(1, [](TestRank&) {
    constexpr int64_t kWeight = Reinitialized::kWidth * Reinitialized::kWidth * 4;
    constexpr int64_t kStates = 5'056 * 4 * Reinitialized::kLayers;
    constexpr int64_t kSmall = 16 * 1'024;  // the state in use, scalars
    const int64_t before = live_bytes::now().total;
    live_bytes::enter(Phase::init);
    std::shared_ptr<Reinitialized> model;
    const DeferredInit init([&] { model = std::make_shared<Reinitialized>(); });
    EXPECT_LE(live_bytes::peak().total - before, kWeight + kStates + kSmall)
        << "bytes alive while recording";
    for (const at::Tensor& parameter : model->parameters())
      EXPECT_EQ(init.materialize_tensor(parameter).nbytes(), parameter.nbytes());
    EXPECT_LE(live_bytes::peak().total - before, kWeight + kStates + kSmall)
        << "bytes alive while each tensor is materialized and dropped: more than one at a time";
    EXPECT_GE(live_bytes::peak().total - before, kWeight) << "the measurement saw nothing";
  });
}

TEST(T1_3_bounded_replay, recording_needs_memory_only_for_what_it_draws) {
  run_ranks(1, [](TestRank&) {
    constexpr int64_t kSmall = 16 * 1'024;  // what is drawn, the generator's states, scalars
    const int64_t before = live_bytes::now().total;
    live_bytes::enter(Phase::init);
    at::Tensor sums;
    const DeferredInit init([&] {
      sums = torch::ones({1'000, 100}).mul_(2).sum(0);
      sums.normal_();
    });
    EXPECT_EQ(sums.numel(), 100) << "elements of the sums, if they were made";
    EXPECT_LE(live_bytes::peak().total - before, kSmall)
        << "bytes alive while recording, which draws 100 numbers; the ones would have 400,000";
  });
}

TEST(T1_3_bounded_replay, only_what_a_tensor_depends_on_is_replayed) {
  run_ranks(1, [](TestRank&) {
    constexpr int64_t kCopies = 100'000;
    constexpr int64_t kSmall = 16 * 1'024;  // bytes: the state in use, scalars
    at::Tensor small, copy;
    const DeferredInit init([&] {
      small = torch::randn({4});
      const at::Tensor large = small.repeat({kCopies});
      copy = small.clone();
      small.add_(large.sum());
    });
    const auto bytes_for = [&](const at::Tensor& tensor) {
      const int64_t before = live_bytes::now().total;
      live_bytes::enter(Phase::init);
      EXPECT_TRUE(init.materialize_tensor(tensor).is_cpu());
      return live_bytes::peak().total - before;
    };
    EXPECT_LE(bytes_for(copy), kSmall)
        << "bytes for a copy of 4 elements, from before they were changed: what only reads them, "
           "or changes them later, was replayed";
    EXPECT_GE(bytes_for(small), kCopies * 16) << "the measurement saw nothing";
  });
}

TEST(T1_3_bounded_replay, only_tensors_that_are_not_materialized_yet_are_replayed) {
  run_ranks(1, [](TestRank&) {
    constexpr int64_t kLayer = (Reinitialized::kWidth + 1) * Reinitialized::kWidth * 4;
    constexpr int64_t kSmall = 16 * 1'024;  // the state in use, scalars
    std::shared_ptr<Reinitialized> model;
    const DeferredInit init([&] { model = std::make_shared<Reinitialized>(); });
    const auto expect_one_layer_more = [&](nn::Module& module, const std::string& what) {
      const int64_t before = live_bytes::now().total;
      live_bytes::enter(Phase::init);
      init.materialize_module(module);
      EXPECT_LE(live_bytes::peak().total - before, kLayer + kSmall) << "bytes needed for " << what;
      EXPECT_GE(live_bytes::now().total - before, kLayer) << what << " is not materialized";
    };
    const auto layers = model->children();
    for (size_t i = 1; i < layers.size(); ++i)
      expect_one_layer_more(*layers[i], "one layer");
    expect_one_layer_more(*model, "the only layer that is not materialized yet");
  });
}

TEST(T1_3_bounded_replay, a_destroyed_recording_leaves_no_bytes) {
  run_ranks(1, [](TestRank&) {
    torch::rand({1});
    const int64_t before = live_bytes::now().total;
    std::shared_ptr<Reinitialized> model;
    {
      const DeferredInit init([&] { model = std::make_shared<Reinitialized>(); });
      EXPECT_GT(live_bytes::now().total, before) << "the state of the generator was not kept";
    }
    EXPECT_EQ(live_bytes::now().total, before);
  });
}

TEST(T1_3_bounded_replay, a_view_is_materialized_with_its_own_sizes_and_strides) {
  run_ranks(1, [](TestRank&) {
    const auto view_of_a_matrix = [] {
      return torch::arange(12.0F).view({3, 4}).t().narrow(0, 1, 2);
    };
    const at::Tensor expected = view_of_a_matrix();
    at::Tensor view;
    const DeferredInit init([&] { view = view_of_a_matrix(); });
    const at::Tensor actual = init.materialize_tensor(view);
    EXPECT_EQ(actual.strides(), expected.strides());
    EXPECT_TRUE(same_bits(actual, expected)) << actual << "\nexpected\n" << expected;
  });
}

TEST(T1_3_bounded_replay, strided_tensors_equal_eager_ones_and_keep_their_strides) {
  expect_as_eager({holder("strided",
                          [](Holder& self) {
                            self.parameter("transposed", torch::randn({9, 5}).t());
                            // normal_() draws 16 and more numbers in another order if they are
                            // contiguous.
                            self.buffer("drawn transposed", torch::empty({9, 5}).t().normal_());
                            self.buffer("drawn after", torch::randn({20}));
                          })},
                  backward_one_by_one);
}

TEST(T1_3_bounded_replay, seeding_and_other_generators_work_inside_a_constructor) {
  expect_as_eager({holder("generators",
                          [](Holder& self) {
                            self.buffer("before", torch::randn({20}));
                            torch::manual_seed(5);
                            self.buffer("seeded", torch::randn({20}));
                            auto own = at::make_generator<at::CPUGeneratorImpl>(9);
                            self.buffer("own", torch::empty({20}).normal_(0, 1, own));
                            self.buffer("own again", torch::rand({20}, own));
                            self.buffer("own order", torch::randperm(9, own));
                            self.buffer("own once more", torch::rand({3}, own));
                            self.buffer("default", torch::rand({3}));
                          })},
                  backward_one_by_one);
}

TEST(T1_3_bounded_replay, a_constructor_may_read_values) {
  expect_as_eager({holder("reading",
                          [](Holder& self) {
                            const at::Tensor rates = torch::linspace(0, 0.3, 4);
                            self.buffer("dropped", torch::full({2}, rates[2].item<double>()));
                            const at::Tensor drawn = torch::rand({50});
                            self.buffer("chosen", drawn.nonzero());
                            self.buffer("large", drawn.masked_select(drawn > 0.5));
                            if (drawn[0].item<double>() < drawn[1].item<double>())
                              self.buffer("less", torch::rand({3}));
                            self.buffer("not greater",
                                        torch::full({1}, torch::equal(drawn, drawn) ? 1 : 0));
                            at::Tensor masked = torch::rand({6});
                            masked.masked_fill_(masked > 0.5, 0);
                            masked.index_put_({masked < 0.2}, 1);
                            self.buffer("masked", masked);
                            self.buffer("last", torch::rand({3}));
                          })},
                  backward_one_by_one);
}

TEST(T1_3_bounded_replay, a_view_whose_place_depends_on_values_is_a_view) {
  expect_as_eager({holder("views",
                          [](Holder& self) {
                            const at::Tensor whole = self.buffer("whole", torch::rand({6, 3}));
                            const at::Tensor at = torch::tensor({1, 4});
                            const auto rows = whole.tensor_split(at, /*dim=*/0);
                            rows[1].fill_(7);
                            self.buffer("last rows", rows[2] * 2);
                          })},
                  backward_one_by_one);
}

TEST(T1_3_bounded_replay, a_sparse_tensor_is_made_at_once) {
  expect_as_eager({holder("sparse",
                          [](Holder& self) {
                            const at::Tensor at = torch::tensor({{0, 4}});
                            const auto sparse = torch::sparse_coo_tensor(at, torch::rand({2}), {6});
                            self.buffer("dense", sparse.to_dense() * 2);
                            self.buffer("sum", torch::rand({6}) + sparse);
                            sparse.mul_(torch::rand({6}));
                            self.buffer("after a write", sparse.to_dense() * 2);
                            self.buffer("drawn after", torch::rand({3}));
                          })},
                  backward_one_by_one);
}

TEST(T1_3_bounded_replay, submodules_called_in_a_constructor_keep_their_changed_state) {
  expect_as_eager({called_submodules()}, backward_one_by_one);
}

TEST(T1_3_bounded_replay, a_constructor_may_write_to_a_tensor_made_before_it) {
  run_ranks(1, [](TestRank&) {
    torch::manual_seed(test_seed(17));
    const at::Tensor drawn = torch::randn({20});
    const at::Tensor next = torch::rand({4});
    const at::Tensor doubled = drawn * 2, written = drawn.clone();
    written[3] = 7;
    torch::manual_seed(test_seed(17));
    const at::Tensor outside = torch::zeros({20});
    at::Tensor sum, twice, last;
    const DeferredInit init([&] {
      const at::Tensor inside = torch::randn({20});
      outside.copy_(inside);
      sum = inside + outside;
      twice = outside * 2;
      outside.data_ptr<float>()[3] = 7;  // of which no operator knows
      last = torch::zeros({20}) + outside;
    });
    ASSERT_TRUE(twice.is_cpu())
        << "the tensor made before, to which the constructor wrote, is taken for a recorded one";
    EXPECT_TRUE(same_bits(outside, written))
        << "the tensor made before, to which the constructor wrote, is\n"
        << outside << "\nexpected\n"
        << written;
    EXPECT_TRUE(same_bits(torch::rand({4}), next)) << "random numbers drawn afterwards";
    EXPECT_TRUE(same_bits(init.materialize_tensor(sum), doubled))
        << "what was recorded does not read the values that the constructor has written";
    EXPECT_TRUE(same_bits(init.materialize_tensor(last), written))
        << "what was recorded last does not read the value that the constructor wrote by a pointer";
  });
}

TEST(T1_3_bounded_replay, an_error_in_a_constructor_reads_as_in_eager_construction) {
  run_ranks(1, [](TestRank&) {
    const auto message_of = [](const std::function<void()>& body) -> std::string {
      try {
        body();
      } catch (const c10::Error& error) {
        return error.what_without_backtrace();
      }
      return "nothing was thrown";
    };
    const auto mistake = [] { torch::zeros({3}).copy_(torch::zeros({4})); };
    EXPECT_EQ(message_of([&] { const DeferredInit init(mistake); }), message_of(mistake));
    EXPECT_TRUE(torch::zeros({2}).is_cpu());
  });
}

TEST(T1_3_bounded_replay, dependent_tensors_equal_eager_ones_when_replayed_in_reverse) {
  expect_as_eager({{"reinitialized", [] { return std::make_shared<Reinitialized>(); }},
                   holder("chain",
                          [](Holder& self) {
                            at::NoGradGuard no_grad;
                            at::Tensor a = self.buffer("a", torch::randn({20}));
                            at::Tensor b = self.buffer("b", a.clone().bernoulli_(a.sigmoid()));
                            a.normal_().add_(b);
                            self.buffer("c", torch::stack({a, b}).mul_(2));
                            b.narrow(0, 3, 4).uniform_();
                          })},
                  backward_one_by_one);
}

TEST(T1_3_bounded_replay, random_initializations_equal_eager_ones_when_replayed_in_reverse) {
  expect_as_eager(init_functions(), backward_one_by_one);
}

TEST(T1_3_bounded_replay, modules_of_torch_equal_eager_ones_when_replayed_in_reverse) {
  expect_as_eager(modules_of_torch(), backward_one_by_one);
}
