#include <memory/live_bytes.h>
#include <meta_init.h>

#include <algorithm>
#include <thread>

#include "constructions.h"

using namespace fsdp;

namespace {

namespace nn = torch::nn;

using Body = std::function<void()>;

// One of the two ways to run a constructor on the meta device: DeferredInit or construct_on_meta().
struct Runner {
  std::string name;
  std::function<void(const Body&)> run;
};

std::vector<Runner> runners() {
  return {{"DeferredInit", [](const Body& construct) { const DeferredInit init(construct); }},
          {"construct_on_meta", [](const Body& construct) { construct_on_meta(construct); }}};
}

// The name of an observation of several tests: whether the constructor has run, on the meta device.
constexpr const char* kRedirected = "the constructor ran, on the meta device";

struct OwnError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace

TEST(T1_1_redirect, deferred_init_runs_the_constructor_exactly_once) {
  for (const Runner& runner : runners()) {
    const std::string what = "how often " + runner.name + " ran the constructor";
    const RankRun run = run_ranks(1, [&](TestRank& rank) {
      int times = 0;
      runner.run([&] { ++times; });
      rank.observe(what, times);
    });
    expect_on_all_ranks(run, what, 1);
  }
}

TEST(T1_1_redirect, parameters_and_buffers_made_in_deferred_init_are_on_meta) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    at::Tensor first, second;
    const DeferredInit factories([&] {
      first = torch::zeros({2});
      second = torch::zeros({2});
    });
    rank.observe("torch::zeros(), a factory, which takes no tensor, is on", device_name(first));
    rank.observe("torch::zeros(), called again, is on", device_name(second));
    for (const auto& [name, construct] : modules_of_torch()) {
      std::shared_ptr<nn::Module> module;
      const DeferredInit init([&, &construct = construct] { module = construct(); });
      rank.observe("the tensors of " + name + " are on", device_names(tensors_of(*module)));
    }
  });
  expect_on_all_ranks(run, "torch::zeros(), a factory, which takes no tensor, is on", "meta");
  expect_on_all_ranks(run, "torch::zeros(), called again, is on", "meta");
  for (const auto& module : modules_of_torch()) {
    const std::string what = "the tensors of " + module.name + " are on";
    expect_on_all_ranks(run, what, nlohmann::json(run.at(0, what).size(), "meta"));
  }
}

TEST(T1_1_redirect, every_kind_of_factory_is_redirected) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const at::Tensor outside = torch::ones({2, 3});
    std::vector<at::Tensor> made;
    const DeferredInit init([&] {
      const at::Tensor a = torch::zeros({2, 3});
      made = {a,
              torch::empty({4}),
              torch::ones({4}),
              torch::full({4}, 2),
              torch::arange(4),
              torch::linspace(0, 1, 4),
              torch::eye(3),
              torch::rand({4}),
              torch::randn({4}),
              torch::randint(9, {4}),
              torch::tensor(1.5),
              torch::zeros_like(a),
              torch::randn_like(a),
              torch::empty_like(a),
              torch::zeros_like(outside),
              a.new_empty({5}),
              a.new_full({5}, 1),
              a.clone(),
              a + outside,
              outside + a,
              torch::cat({outside, a}),
              torch::randperm(5),
              a.to(torch::kDouble)};
    });
    rank.observe("the tensors are on", device_names(made));
  });
  expect_on_all_ranks(run, "the tensors are on", nlohmann::json(23, "meta"));
}

TEST(T1_1_redirect, a_factory_call_with_an_explicit_cpu_device_is_redirected_too) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    std::map<std::string, at::Tensor> made;
    const DeferredInit init([&] {
      const auto doubles = torch::device(torch::kCPU).dtype(torch::kDouble);
      made = {{"torch::zeros({2, 3}, torch::kCPU)", torch::zeros({2, 3}, torch::kCPU)},
              {"torch::empty({2, 3}, torch::kCPU)", torch::empty({2, 3}, torch::kCPU)},
              {"torch::empty({1'000}, torch::kCPU)", torch::empty({1'000}, torch::kCPU)},
              {"at::empty({1'000}, at::kCPU)", at::empty({1'000}, at::kCPU)},
              {"torch::empty({4}, doubles on the CPU)", torch::empty({4}, doubles)},
              {"torch::randn({4}, doubles on the CPU)", torch::randn({4}, doubles)},
              {"torch::zeros({4}).to(torch::kCPU)", torch::zeros({4}).to(torch::kCPU)}};
    });
    std::map<std::string, std::string> devices;
    for (const auto& [call, tensor] : made)
      devices[call] = device_name(tensor);
    rank.observe("devices", devices);
  });
  EXPECT_EQ(run.at(0, "devices").size(), 7) << "calls of the constructor, if it ran";
  for (const auto& [call, device] : run.at(0, "devices").items())
    EXPECT_EQ(device, "meta") << call << " made a tensor on " << device.get<std::string>();
}

TEST(T1_1_redirect, in_deferred_init_torch_tensor_of_given_values_is_made_on_the_cpu) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    at::Tensor values;
    const DeferredInit init([&] { values = torch::tensor(std::vector<float>{1, 2.5, -3}); });
    rank.observe("torch::tensor(vector)", numbers_of(values));
  });
  expect_on_all_ranks(run, "torch::tensor(vector)", {1, 2.5, -3});
}

TEST(T1_1_redirect, operations_on_tensors_made_before_the_recording_run_eagerly) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const at::Tensor outside = torch::arange(6);
    at::Tensor sum;
    int64_t value = 0;
    const DeferredInit init([&] {
      outside.mul_(2);
      value = outside[3].item<int64_t>();
      sum = outside + 1;
    });
    rank.observe("element 3 of a tensor made before, doubled, read in the constructor", value);
    rank.observe("a tensor made before, doubled", numbers_of(outside));
    rank.observe("a sum of tensors made before", numbers_of(sum));
    rank.observe("recorded", init.operations());
  });
  expect_on_all_ranks(run,
                      {{"element 3 of a tensor made before, doubled, read in the constructor", 6},
                       {"a tensor made before, doubled", {0, 2, 4, 6, 8, 10}},
                       {"a sum of tensors made before", {1, 3, 5, 7, 9, 11}},
                       {"recorded", nlohmann::json::array()}});
}

// The storage of a new tensor may get the address of a recorded tensor's storage that was freed.
TEST(T1_1_redirect, a_tensor_at_the_address_of_a_freed_recorded_one_is_not_taken_for_it) {
  const std::string what =
      "sums of tensors with values; one on meta was taken for a recorded tensor that is gone";
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    const std::vector<float> values{1, 2, 3};
    std::vector<at::Tensor> sums;
    const DeferredInit init([&] {
      for (int i = 0; i < 50; ++i) {
        torch::zeros({3});  // a recorded tensor, which is freed at once
        sums.push_back(torch::tensor(values) + 1);
      }
    });
    rank.observe(what, device_names(sums));
  });
  expect_on_all_ranks(run, what, nlohmann::json(50, "cpu"));
}

TEST(T1_1_redirect, operations_are_recorded_in_order_without_views) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const at::Tensor outside = torch::ones({4, 3});
    const DeferredInit init([&] {
      at::Tensor a = torch::empty({4, 3});
      a.fill_(1);
      a.narrow(0, 1, 2).t().mul_(2);
      at::Tensor b = torch::zeros_like(a);
      b.add_(a[0]);
      torch::cat({outside, b});
      torch::randperm(5);
    });
    rank.observe("operations", init.operations());
  });
  expect_on_all_ranks(run, "operations",
                      {"aten::empty", "aten::fill_", "aten::mul_", "aten::zeros_like", "aten::add_",
                       "aten::cat", "aten::randperm"});
}

TEST(T1_1_redirect, operations_of_another_thread_are_not_recorded) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    at::Tensor made;
    std::string thrown;
    std::vector<std::string> operations;
    const DeferredInit init([&] {
      std::thread other([&] {
        made = torch::ones({3});
        thrown = thrown_by([&] {
          const DeferredInit own([] { torch::zeros({3}); });
          operations = own.operations();
        });
      });
      other.join();
    });
    rank.observe("another thread's tensor was made on", device_name(made));
    rank.observe("what another thread's recording throws", thrown);
    rank.observe("operations of the other thread", operations);
    rank.observe("operations of the thread that waited", init.operations());
  });
  expect_on_all_ranks(run, {{"another thread's tensor was made on", "cpu"},
                            {"what another thread's recording throws", kNothingThrown},
                            {"operations of the other thread", {"aten::zeros"}},
                            {"operations of the thread that waited", nlohmann::json::array()}});
}

TEST(T1_1_redirect, a_deferred_construction_keeps_only_generator_states_in_memory) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const Construct construct = transformer_layer(256);
    int64_t before = live_bytes::now().total;
    std::shared_ptr<nn::Module> layer = construct();
    rank.observe("bytes of an eager layer", live_bytes::now().total - before);
    layer.reset();
    before = live_bytes::now().total;
    const DeferredInit init([&] { layer = construct(); });
    rank.observe(kRedirected, layer != nullptr);
    rank.observe("bytes", live_bytes::now().total - before);
    rank.observe("operations", init.operations());
  });
  expect_on_all_ranks(run, kRedirected, true);
  EXPECT_GT(run.at(0, "bytes of an eager layer"), 5'000'000) << "the measurement saw nothing";
  const auto random = std::ranges::count(run.at(0, "operations"), "aten::uniform_");
  EXPECT_LE(run.at(0, "bytes"), 5'056 * random)
      << "bytes alive after construction, which drew " << random
      << " times: more than one state of a generator (5,056 bytes) for each";
}

TEST(T1_1_redirect, construct_on_meta_draws_no_random_number) {
  const std::string next =
      "random numbers drawn next; they differ if construct_on_meta() moved the generator";
  const auto draw = [&](TestRank& rank, const auto& construct_first) {
    torch::manual_seed(5);
    construct_first();
    rank.observe(next, torch::rand({4}));
  };
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    bool redirected = false;
    draw(rank,
         [&] { construct_on_meta([&] { redirected = nn::Linear(30, 20)->weight.is_meta(); }); });
    rank.observe(kRedirected, redirected);
  });
  expect_on_all_ranks(run, kRedirected, true);
  expect_as(run, run_oracle([&](TestRank& rank) { draw(rank, [] {}); }));
}

TEST(T1_1_redirect, construct_on_meta_needs_no_memory_for_a_tensor) {
  // Number of bytes that the test allows for generator states and scalars.
  constexpr int64_t kSmall = 64 * 1'024;
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    torch::rand({1});
    const int64_t before = live_bytes::now().total;
    live_bytes::enter(Phase::init);
    bool redirected = false;
    construct_on_meta([&] { redirected = nn::Linear(500, 500)->weight.is_meta(); });
    rank.observe(kRedirected, redirected);
    rank.observe("most bytes alive", live_bytes::peak().total - before);
    rank.observe("bytes alive after construct_on_meta()", live_bytes::now().total - before);
  });
  expect_on_all_ranks(run, {{kRedirected, true}, {"bytes alive after construct_on_meta()", 0}});
  EXPECT_LE(run.at(0, "most bytes alive"), kSmall)
      << "bytes alive during construct_on_meta(); the weight has 1,000,000";
}

TEST(T1_1_redirect, sizes_strides_dtype_and_requires_grad_are_as_in_eager_construction) {
  const auto describe = [](TestRank& rank, const auto& make) {
    for (const auto& [name, construct] : modules_of_torch()) {
      nlohmann::json tensors;
      const auto module = make(construct);
      for (const at::Tensor& t : tensors_of(*module))
        tensors.push_back({t.sizes().vec(), t.strides().vec(), c10::toString(t.scalar_type()),
                           t.requires_grad() ? "requires_grad" : ""});
      rank.observe(name, tensors);
    }
  };
  const RankRun eager = run_oracle([&](TestRank& rank) {
    describe(rank, [](const Construct& construct) { return construct(); });
  });
  expect_as(run_ranks(1,
                      [&](TestRank& rank) {
                        describe(rank, [](const Construct& construct) {
                          std::shared_ptr<nn::Module> module;
                          const DeferredInit init([&] { module = construct(); });
                          return module;
                        });
                      }),
            eager);
}

TEST(T1_1_redirect, in_deferred_init_a_constructor_may_run_modules_to_learn_sizes) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    int64_t features = 0;
    const DeferredInit init([&] {
      const at::Tensor kernel = torch::randn({8, 3, 3, 3});
      const at::Tensor image = torch::conv2d(torch::zeros({1, 3, 32, 32}), kernel, {}, 2);
      features = nn::Linear(15, 4)(image).flatten().size(0);
    });
    rank.observe("features", features);
  });
  expect_on_all_ranks(run, "features", 8 * 15 * 4);
}

TEST(T1_1_redirect, tensors_made_after_recording_are_on_the_cpu) {
  for (const Runner& runner : runners()) {
    const std::string zeros = "after " + runner.name + " torch::zeros() is on",
                      weight = "after " + runner.name + " the weight of a module is on";
    const RankRun run = run_ranks(1, [&](TestRank& rank) {
      bool redirected = false;
      runner.run([&] { redirected = torch::zeros({2}).is_meta(); });
      rank.observe(kRedirected, redirected);
      rank.observe(zeros, device_name(torch::zeros({2})));
      rank.observe(weight, device_name(nn::Linear(3, 3)->weight));
    });
    expect_on_all_ranks(run, {{kRedirected, true}, {zeros, "cpu"}, {weight, "cpu"}});
  }
}

TEST(T1_1_redirect, an_exception_of_the_constructor_ends_recording_and_is_rethrown) {
  for (const Runner& runner : runners()) {
    const std::string thrown = "what " + runner.name + " throws",
                      left = "bytes alive after the error, " + runner.name,
                      device = "after the error of " + runner.name + " torch::zeros() is on",
                      next = "what the next " + runner.name + " throws";
    const RankRun run = run_ranks(1, [&](TestRank& rank) {
      const int64_t before = live_bytes::now().total;
      rank.observe(thrown, thrown_by([&] {
                     runner.run([] {
                       nn::Linear(300, 300);
                       throw OwnError("the constructor's own error");
                     });
                   }));
      rank.observe(left, live_bytes::now().total - before);
      rank.observe(device, device_name(torch::zeros({2})));
      rank.observe(next, thrown_by([&] { runner.run([] { nn::Linear(3, 3); }); }));
    });
    expect_error(run, thrown, {"OwnError", "the constructor's own error"});
    expect_on_all_ranks(run, {{left, 0}, {device, "cpu"}, {next, kNothingThrown}});
  }
}

TEST(T1_1_redirect, a_deferred_init_inside_another_one_throws) {
  for (const Runner& outer : runners()) {
    for (const Runner& inner : runners()) {
      const std::string thrown = "what " + inner.name + " inside " + outer.name + " throws",
                        after =
                            "device of the next tensor; if it is not meta, the error of the "
                            "inner one has ended the outer one",
                        at_the_end = "device of a tensor that is made at the end";
      const RankRun run = run_ranks(1, [&](TestRank& rank) {
        outer.run([&] {
          rank.observe(thrown, thrown_by([&] { inner.run([] { nn::Linear(3, 3); }); }));
          rank.observe(after, device_name(torch::zeros({2})));
        });
        rank.observe(at_the_end, device_name(torch::zeros({2})));
      });
      expect_error(run, thrown, {"outermost"});
      expect_on_all_ranks(run, {{after, "meta"}, {at_the_end, "cpu"}});
    }
  }
}

// Runs `construct` as a constructor in each of the two ways of runners(). Expects that each of them
// throws an error that contains `words`.
void expect_errors(const std::vector<std::string>& words, const Body& construct) {
  for (const Runner& runner : runners()) {
    const std::string thrown = "what " + runner.name + " throws";
    const RankRun run = run_ranks(1, [&](TestRank& rank) {
      rank.observe(thrown, thrown_by([&] { runner.run(construct); }));
    });
    expect_error(run, thrown, words);
  }
}

TEST(T1_1_redirect, making_a_tensor_on_another_device_throws_and_names_the_operator) {
  expect_errors({"aten::zeros", "cuda"}, [] { torch::zeros({2}, torch::kCUDA); });
  expect_errors({"aten::to", "cuda"}, [] { torch::zeros({2}).to(torch::kCUDA); });
}

TEST(T1_1_redirect, access_to_a_recorded_tensor_through_a_pointer_throws) {
  expect_errors({"pointer"}, [] { *torch::zeros({2}).data_ptr<float>() = 1; });
  expect_errors({"pointer"}, [] {
    const at::Tensor tensor = torch::zeros({2});
    tensor.accessor<float, 1>()[0] = 1;
  });
}
