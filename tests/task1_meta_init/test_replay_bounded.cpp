#include <ATen/CPUGeneratorImpl.h>
#include <memory/live_bytes.h>
#include <meta_init.h>

#include "constructions.h"

using namespace fsdp;

namespace {

namespace nn = torch::nn;

// Records `construct`, and materializes each tensor of the module separately, the last one first.
// Draws other random numbers between two tensors. Returns the materialized module.
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

// The number of bytes that a test allows for drawn numbers, a state of the generator and scalars.
constexpr int64_t kSmall = 16 * 1'024;

}  // namespace

TEST(T1_3_bounded_replay, materialize_tensor_leaves_the_modules_own_tensor_on_meta) {
  const std::string changed = "a tensor that was not recorded was not returned unchanged",
                    foreign = "a tensor of another recording was not returned unchanged";
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    nn::Linear linear{nullptr}, other{nullptr};
    const DeferredInit init([&] { linear = nn::Linear(5, 4); });
    const DeferredInit of_other([&] { other = nn::Linear(5, 4); });
    rank.observe("the weight", numbers_of(init.materialize_tensor(linear->weight)));
    rank.observe("the module's own are on", device_names(linear->parameters()));
    rank.observe("the weight again", numbers_of(init.materialize_tensor(linear->weight)));
    const at::Tensor outside = torch::ones({3});
    rank.observe(changed, !init.materialize_tensor(outside).is_same(outside));
    rank.observe(foreign, !init.materialize_tensor(other->weight).is_same(other->weight));
  });
  EXPECT_EQ(run.at(0, "the weight").size(), 20);
  expect_on_all_ranks(run, {{"the module's own are on", {"meta", "meta"}},
                            {"the weight again", run.at(0, "the weight")},
                            {changed, false},
                            {foreign, false}});
}

TEST(T1_3_bounded_replay, a_materialized_tensor_shares_memory_with_no_other_tensor) {
  const std::string second = "the second; the first result, which is alive, was filled with -1",
                    third = "the weight materialized alone; the module's was filled with -2";
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    nn::Linear linear{nullptr};
    at::Tensor detached;
    const DeferredInit init([&] {
      linear = nn::Linear(5, 4);
      detached = linear->weight.detach();
    });
    const at::Tensor first = init.materialize_tensor(linear->weight);
    rank.observe("the first", first);
    first.fill_(-1);
    rank.observe(second, init.materialize_tensor(linear->weight));
    init.materialize_module(*linear);
    linear->weight.detach().fill_(-2);
    rank.observe(third, init.materialize_tensor(detached));
  });
  expect_on_all_ranks(run, {{second, run.at(0, "the first")}, {third, run.at(0, "the first")}});
}

TEST(T1_3_bounded_replay, changing_a_materialized_tensor_does_not_change_the_next_replay) {
  const std::string again = "the first result was filled with -1, then materialized again: ";
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    const at::Tensor outside = torch::arange(6);
    at::Tensor view, set;
    const DeferredInit init([&] {
      view = outside.view_as(torch::zeros({2, 3}));
      set = torch::empty({0}, torch::kLong);
      set.set_(outside);
    });
    for (const auto& [name, tensor] : {std::pair("a view", view), std::pair("set", set)}) {
      init.materialize_tensor(tensor).fill_(-1);
      rank.observe(again + name, numbers_of(init.materialize_tensor(tensor)));
    }
    rank.observe("the tensor made before", numbers_of(outside));
  });
  const std::vector<int> values{0, 1, 2, 3, 4, 5};
  expect_on_all_ranks(
      run,
      {{again + "a view", values}, {again + "set", values}, {"the tensor made before", values}});
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
    rank.observe("the bias is on", device_name(init.materialize_tensor(linear->bias)));
    init.materialize_module(*linear);
    rank.observe("random numbers drawn after materializing", torch::randn({20}));
  });
  expect_on_all_ranks(run, "the bias is on", "cpu");
  expect_as(run, eager);
}

TEST(T1_3_bounded_replay, replay_leaves_the_callers_generator_as_eager_construction_does) {
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
  expect_as(run, eager);
}

TEST(T1_3_bounded_replay, materializing_tensors_one_by_one_keeps_one_alive_at_a_time) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const int64_t before = live_bytes::now().total;
    live_bytes::enter(Phase::init);
    std::shared_ptr<Reinitialized> model;
    const DeferredInit init([&] { model = std::make_shared<Reinitialized>(); });
    rank.observe("peak while recording", live_bytes::peak().total - before);
    std::map<std::string, int> tensors;
    for (const at::Tensor& parameter : model->parameters())
      ++tensors[std::to_string(init.materialize_tensor(parameter).nbytes()) + " bytes"];
    rank.observe("tensors of", tensors);
    rank.observe("peak", live_bytes::peak().total - before);
  });
  constexpr int64_t kWeight = Reinitialized::kWidth * Reinitialized::kWidth * 4;
  constexpr int64_t kStates = 5'056 * 4 * Reinitialized::kLayers;
  expect_on_all_ranks(run, "tensors of", {{"65536 bytes", 8}, {"512 bytes", 8}});
  EXPECT_LE(run.at(0, "peak while recording"), kWeight + kStates + kSmall)
      << "bytes alive while recording";
  EXPECT_LE(run.at(0, "peak"), kWeight + kStates + kSmall)
      << "bytes alive while each tensor is materialized and dropped: more than one at a time";
  EXPECT_GE(run.at(0, "peak"), kWeight) << "the measurement saw nothing";
}

TEST(T1_3_bounded_replay, recording_allocates_memory_only_for_random_numbers) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const int64_t before = live_bytes::now().total;
    live_bytes::enter(Phase::init);
    at::Tensor sums;
    const DeferredInit init([&] {
      sums = torch::ones({1'000, 100}).mul_(2).sum(0);
      sums.normal_();
    });
    rank.observe("elements of the sums, if they were made", sums.numel());
    rank.observe("peak", live_bytes::peak().total - before);
  });
  expect_on_all_ranks(run, "elements of the sums, if they were made", 100);
  EXPECT_LE(run.at(0, "peak"), kSmall)
      << "bytes alive while recording, which draws 100 numbers; the ones would have 400,000";
}

// Returns the peak of live bytes while `init` materializes `tensor`, minus the bytes that were
// alive before.
int64_t bytes_for(const at::Tensor& tensor, const DeferredInit& init) {
  const int64_t before = live_bytes::now().total;
  live_bytes::enter(Phase::init);
  const at::Tensor made = init.materialize_tensor(tensor);
  return made.is_cpu() ? live_bytes::peak().total - before : -1;
}

TEST(T1_3_bounded_replay, materialize_tensor_replays_only_what_the_tensor_depends_on) {
  constexpr int64_t kCopies = 100'000;
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    at::Tensor small, copy;
    const DeferredInit init([&] {
      small = torch::randn({4});
      const at::Tensor large = small.repeat({kCopies});
      copy = small.clone();
      small.add_(large.sum());
    });
    rank.observe("copy", bytes_for(copy, init));
    rank.observe("small", bytes_for(small, init));
  });
  EXPECT_LE(run.at(0, "copy"), kSmall)
      << "bytes for a copy of 4 elements, from before they were changed: what only reads them, or "
         "changes them later, was replayed";
  EXPECT_GE(run.at(0, "copy"), 16) << "the copy is not materialized";
  EXPECT_GE(run.at(0, "small"), kCopies * 16) << "the measurement saw nothing";
}

TEST(T1_3_bounded_replay, materialize_module_replays_only_tensors_not_materialized_yet) {
  constexpr int64_t kLayer = (Reinitialized::kWidth + 1) * Reinitialized::kWidth * 4;
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    std::shared_ptr<Reinitialized> model;
    const DeferredInit init([&] { model = std::make_shared<Reinitialized>(); });
    std::vector<std::shared_ptr<nn::Module>> parts = model->children();
    // The whole model is materialized last. At that time only its first layer is not materialized
    // yet.
    parts.front() = model;
    std::rotate(parts.begin(), parts.begin() + 1, parts.end());
    // For each call of materialize_module(): the number of bytes at the peak, and the number of
    // bytes that are alive afterwards.
    std::vector<std::pair<int64_t, int64_t>> bytes;
    for (const auto& part : parts) {
      const int64_t before = live_bytes::now().total;
      live_bytes::enter(Phase::init);
      init.materialize_module(*part);
      bytes.emplace_back(live_bytes::peak().total - before, live_bytes::now().total - before);
    }
    rank.observe("bytes", bytes);
  });
  ASSERT_EQ(run.at(0, "bytes").size(), Reinitialized::kLayers);
  for (const auto& part : run.at(0, "bytes")) {
    EXPECT_LE(part.at(0), kLayer + kSmall) << "bytes needed for one layer";
    EXPECT_GE(part.at(1), kLayer) << "a layer is not materialized";
  }
}

TEST(T1_3_bounded_replay, destroying_a_deferred_init_frees_all_its_memory) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    torch::rand({1});
    const int64_t before = live_bytes::now().total;
    std::shared_ptr<Reinitialized> model;
    {
      const DeferredInit init([&] { model = std::make_shared<Reinitialized>(); });
      rank.observe("bytes of the recording", live_bytes::now().total - before);
    }
    rank.observe("bytes after the recording", live_bytes::now().total - before);
  });
  EXPECT_GT(run.at(0, "bytes of the recording"), 0) << "the state of the generator was not kept";
  expect_on_all_ranks(run, "bytes after the recording", 0);
}

TEST(T1_3_bounded_replay, a_view_is_materialized_with_its_own_sizes_and_strides) {
  const auto make = [] { return torch::arange(12.0F).view({3, 4}).t().narrow(0, 1, 2); };
  const auto observe = [](TestRank& rank, const at::Tensor& view) {
    rank.observe("strides", view.strides().vec());
    rank.observe("view", view);
  };
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    at::Tensor view;
    const DeferredInit init([&] { view = make(); });
    observe(rank, init.materialize_tensor(view));
  });
  expect_as(run, run_oracle([&](TestRank& rank) { observe(rank, make()); }));
}

TEST(T1_3_bounded_replay, strided_tensors_equal_eager_ones_and_keep_their_strides) {
  expect_as_eager({holder("strided",
                          [](Holder& self) {
                            self.parameter("transposed", torch::randn({9, 5}).t());
                            // For a contiguous tensor of 16 or more elements, normal_() draws the
                            // numbers in another order than for a transposed one.
                            self.buffer("drawn transposed", torch::empty({9, 5}).t().normal_());
                            self.buffer("drawn after", torch::randn({20}));
                          })},
                  backward_one_by_one);
}

TEST(T1_3_bounded_replay, replay_handles_seeding_and_own_generators_in_a_constructor) {
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

TEST(T1_3_bounded_replay, in_deferred_init_a_constructor_may_read_tensor_values) {
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

TEST(T1_3_bounded_replay, replay_handles_a_view_whose_offset_depends_on_tensor_values) {
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

TEST(T1_3_bounded_replay, in_deferred_init_a_sparse_tensor_is_made_eagerly) {
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
  const std::string outside = "the tensor made before, to which the constructor wrote, is",
                    doubled = "twice that; if it is on meta, it is taken for a recorded one",
                    recorded = "what was recorded reads what the constructor has written",
                    last = "what was recorded last reads the value that was written by a pointer";
  const RankRun eager = run_oracle([&](TestRank& rank) {
    torch::manual_seed(test_seed(17));
    const at::Tensor drawn = torch::randn({20});
    rank.observe("random numbers drawn afterwards", torch::rand({4}));
    rank.observe(doubled, numbers_of(drawn * 2));
    rank.observe(recorded, numbers_of(drawn * 2));
    drawn[3] = 7;
    rank.observe(outside, numbers_of(drawn));
    rank.observe(last, numbers_of(drawn));
  });
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    torch::manual_seed(test_seed(17));
    const at::Tensor made_before = torch::zeros({20});
    at::Tensor sum, twice, copy;
    const DeferredInit init([&] {
      const at::Tensor inside = torch::randn({20});
      made_before.copy_(inside);
      sum = inside + made_before;
      twice = made_before * 2;
      // This write uses no operator, so it cannot be recorded.
      made_before.data_ptr<float>()[3] = 7;
      copy = torch::zeros({20}) + made_before;
    });
    rank.observe(doubled, numbers_of(twice));
    rank.observe(outside, numbers_of(made_before));
    rank.observe("random numbers drawn afterwards", torch::rand({4}));
    rank.observe(recorded, numbers_of(init.materialize_tensor(sum)));
    rank.observe(last, numbers_of(init.materialize_tensor(copy)));
  });
  expect_as(run, eager);
}

TEST(T1_3_bounded_replay, an_error_in_a_deferred_constructor_reads_as_in_an_eager_one) {
  const auto mistake = [] { torch::zeros({3}).copy_(torch::zeros({4})); };
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    rank.observe("error", thrown_by([&] { const DeferredInit init(mistake); }));
    rank.observe("afterwards torch::zeros() is on", device_name(torch::zeros({2})));
  });
  expect_as(run, run_oracle([&](TestRank& rank) { rank.observe("error", thrown_by(mistake)); }));
  expect_on_all_ranks(run, "afterwards torch::zeros() is on", "cpu");
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
