#include <memory/live_bytes.h>
#include <meta_init.h>
#include <testing/multi_rank.h>
#include <testing/tensor_bits.h>

#include <algorithm>
#include <thread>

#include "constructions.h"

using namespace fsdp;

namespace {

namespace nn = torch::nn;

using Body = std::function<void()>;

// Both functions that run a constructor on the meta device.
struct Runner {
  std::string name;
  std::function<void(const Body&)> run;
};

std::vector<Runner> runners() {
  return {{"DeferredInit", [](const Body& construct) { const DeferredInit init(construct); }},
          {"construct_on_meta", [](const Body& construct) { construct_on_meta(construct); }}};
}

constexpr const char* kDidNotRun = "the constructor did not run, or not on the meta device";

// What `body` throws; empty if nothing.
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

struct OwnError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace

TEST(T1_1_redirect, the_constructor_runs_once) {
  run_ranks(1, [](TestRank&) {
    for (const Runner& runner : runners()) {
      int times = 0;
      runner.run([&] { ++times; });
      EXPECT_EQ(times, 1) << "how often " << runner.name << " ran the constructor";
    }
  });
}

TEST(T1_1_redirect, parameters_and_buffers_are_on_the_meta_device) {
  run_ranks(1, [](TestRank&) {
    at::Tensor first, second;
    const DeferredInit factories([&] {
      first = torch::zeros({2});
      second = torch::zeros({2});
    });
    ASSERT_TRUE(first.is_meta()) << "torch::zeros() was made on " << first.device()
                                 << ": a factory takes no tensor, and is to be redirected too";
    ASSERT_TRUE(second.is_meta()) << "the first torch::zeros() is on meta, the second is on "
                                  << second.device() << ": only the first call was redirected";
    for (const auto& [name, construct] : modules_of_torch()) {
      std::shared_ptr<nn::Module> module;
      const DeferredInit init([&, &construct = construct] { module = construct(); });
      for (const at::Tensor& tensor : tensors_of(*module))
        EXPECT_TRUE(tensor.is_meta())
            << name << ": a tensor of sizes " << tensor.sizes() << " takes " << tensor.nbytes()
            << " bytes on " << tensor.device();
    }
  });
}

TEST(T1_1_redirect, every_kind_of_factory_is_redirected) {
  run_ranks(1, [](TestRank&) {
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
    ASSERT_FALSE(made.empty()) << kDidNotRun;
    for (size_t i = 0; i < made.size(); ++i)
      EXPECT_TRUE(made[i].is_meta()) << "tensor " << i << " was made on " << made[i].device();
  });
}

TEST(T1_1_redirect, an_explicit_cpu_device_is_redirected_too) {
  run_ranks(1, [](TestRank&) {
    std::vector<std::pair<std::string, at::Tensor>> made;
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
    ASSERT_FALSE(made.empty()) << kDidNotRun;
    for (const auto& [call, tensor] : made)
      EXPECT_TRUE(tensor.is_meta()) << call << " made a tensor on " << tensor.device();
  });
}

TEST(T1_1_redirect, a_tensor_of_given_values_is_made_on_the_cpu) {
  run_ranks(1, [](TestRank&) {
    at::Tensor values;
    const DeferredInit init([&] { values = torch::tensor(std::vector<float>{1, 2.5, -3}); });
    ASSERT_TRUE(values.is_cpu()) << "torch::tensor(vector) was made on " << values.device();
    EXPECT_EQ(values_of<float>(values), (std::vector<float>{1, 2.5, -3}));
  });
}

TEST(T1_1_redirect, operations_on_tensors_made_before_recording_run_at_once) {
  run_ranks(1, [](TestRank&) {
    const at::Tensor outside = torch::arange(6);
    at::Tensor sum;
    int64_t value = 0;
    const DeferredInit init([&] {
      outside.mul_(2);
      value = outside[3].item<int64_t>();
      sum = outside + 1;
    });
    EXPECT_EQ(value, 6);
    EXPECT_EQ(values_of<int64_t>(outside), (std::vector<int64_t>{0, 2, 4, 6, 8, 10}));
    ASSERT_TRUE(sum.is_cpu()) << "a sum of tensors made before is on " << sum.device();
    EXPECT_EQ(values_of<int64_t>(sum), (std::vector<int64_t>{1, 3, 5, 7, 9, 11}));
    EXPECT_EQ(init.operations(), std::vector<std::string>());
  });
}

// A storage that is gone leaves its address to the next one.
TEST(T1_1_redirect, a_new_tensor_is_not_taken_for_a_recorded_one_that_is_gone) {
  run_ranks(1, [](TestRank&) {
    const std::vector<float> values{1, 2, 3};
    std::vector<at::Tensor> sums;
    const DeferredInit init([&] {
      for (int i = 0; i < 50; ++i) {
        torch::zeros({3});  // recorded
        sums.push_back(torch::tensor(values) + 1);
      }
    });
    ASSERT_FALSE(sums.empty()) << kDidNotRun;
    for (size_t i = 0; i < sums.size(); ++i) {
      ASSERT_TRUE(sums[i].is_cpu())
          << "sum " << i << " of tensors with values is on " << sums[i].device()
          << ": one of them was taken for a recorded tensor that is gone";
    }
  });
}

TEST(T1_1_redirect, operations_are_recorded_in_order_without_views) {
  run_ranks(1, [](TestRank&) {
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
    EXPECT_EQ(init.operations(), (std::vector<std::string>{
                                     "aten::empty", "aten::fill_", "aten::mul_", "aten::zeros_like",
                                     "aten::add_", "aten::cat", "aten::randperm"}));
  });
}

TEST(T1_1_redirect, another_thread_is_not_recorded) {
  run_ranks(1, [](TestRank&) {
    at::Tensor made;
    std::string error;
    std::vector<std::string> operations;
    const DeferredInit init([&] {
      std::thread other([&] {
        made = torch::ones({3});
        error = error_of([&] {
          const DeferredInit own([] { torch::zeros({3}); });
          operations = own.operations();
        });
      });
      other.join();
    });
    EXPECT_TRUE(made.is_cpu()) << "another thread's tensor was made on " << made.device();
    EXPECT_EQ(error, "") << "what another thread's recording throws";
    EXPECT_EQ(operations, std::vector<std::string>{"aten::zeros"}) << "of the other thread";
    EXPECT_EQ(init.operations(), std::vector<std::string>()) << "of the thread that waited";
  });
}

TEST(T1_1_redirect, construction_keeps_only_generator_states_in_memory) {
  run_ranks(1, [](TestRank&) {
    const Construct construct = transformer_layer(256);
    int64_t before = live_bytes::now().total;
    {
      const auto eager = construct();
      EXPECT_GT(live_bytes::now().total - before, 5'000'000) << "the measurement saw nothing";
    }
    before = live_bytes::now().total;
    std::shared_ptr<nn::Module> layer;
    const DeferredInit init([&] { layer = construct(); });
    ASSERT_TRUE(layer) << kDidNotRun;
    const auto operations = init.operations();
    const auto random = std::count(operations.begin(), operations.end(), "aten::uniform_");
    EXPECT_LE(live_bytes::now().total - before, 5'056 * random)
        << "bytes alive after construction, which drew " << random
        << " times: more than one state of a generator (5,056 bytes) for each";
  });
}

TEST(T1_1_redirect, construct_on_meta_draws_no_random_number) {
  run_ranks(1, [](TestRank&) {
    torch::manual_seed(5);
    const at::Tensor expected = torch::rand({4});
    torch::manual_seed(5);
    bool redirected = false;
    construct_on_meta([&] { redirected = nn::Linear(30, 20)->weight.is_meta(); });
    EXPECT_TRUE(redirected) << kDidNotRun;
    EXPECT_TRUE(same_bits(torch::rand({4}), expected))
        << "construct_on_meta() moved the generator: whoever draws next draws other numbers";
  });
}

TEST(T1_1_redirect, construct_on_meta_needs_no_memory_for_a_tensor) {
  run_ranks(1, [](TestRank&) {
    constexpr int64_t kSmall = 64 * 1'024;  // generator states, scalars
    torch::rand({1});
    const int64_t before = live_bytes::now().total;
    live_bytes::enter(Phase::init);
    bool redirected = false;
    construct_on_meta([&] { redirected = nn::Linear(500, 500)->weight.is_meta(); });
    EXPECT_TRUE(redirected) << kDidNotRun;
    EXPECT_LE(live_bytes::peak().total - before, kSmall)
        << "bytes alive during construct_on_meta(); the weight has 1,000,000";
    EXPECT_EQ(live_bytes::now().total, before) << "bytes alive after construct_on_meta()";
  });
}

TEST(T1_1_redirect, sizes_strides_dtype_and_requires_grad_are_as_in_eager_construction) {
  run_ranks(1, [](TestRank&) {
    for (const auto& [name, construct] : modules_of_torch()) {
      const auto eager = construct();
      std::shared_ptr<nn::Module> module;
      const DeferredInit init([&, &construct = construct] { module = construct(); });
      const auto expected = tensors_of(*eager);
      const auto actual = tensors_of(*module);
      ASSERT_EQ(actual.size(), expected.size()) << name;
      for (size_t i = 0; i < actual.size(); ++i) {
        EXPECT_EQ(actual[i].sizes(), expected[i].sizes()) << name;
        EXPECT_EQ(actual[i].strides(), expected[i].strides()) << name;
        EXPECT_EQ(actual[i].dtype(), expected[i].dtype()) << name;
        EXPECT_EQ(actual[i].requires_grad(), expected[i].requires_grad()) << name;
      }
    }
  });
}

TEST(T1_1_redirect, a_constructor_may_call_its_submodules_to_learn_sizes) {
  run_ranks(1, [](TestRank&) {
    int64_t features = 0;
    const DeferredInit init([&] {
      const at::Tensor kernel = torch::randn({8, 3, 3, 3});
      const at::Tensor image = torch::conv2d(torch::zeros({1, 3, 32, 32}), kernel, {}, 2);
      features = nn::Linear(15, 4)(image).flatten().size(0);
    });
    EXPECT_EQ(features, 8 * 15 * 4);
  });
}

TEST(T1_1_redirect, tensors_made_after_recording_are_real) {
  run_ranks(1, [](TestRank&) {
    for (const Runner& runner : runners()) {
      bool redirected = false;
      runner.run([&] { redirected = torch::zeros({2}).is_meta(); });
      EXPECT_TRUE(redirected) << kDidNotRun;
      EXPECT_TRUE(torch::zeros({2}).is_cpu()) << "after " << runner.name;
      EXPECT_TRUE(nn::Linear(3, 3)->weight.is_cpu()) << "after " << runner.name;
    }
  });
}

TEST(T1_1_redirect, an_exception_of_the_constructor_ends_recording_and_is_rethrown) {
  run_ranks(1, [](TestRank&) {
    for (const Runner& runner : runners()) {
      const int64_t before = live_bytes::now().total;
      try {
        runner.run([] {
          nn::Linear(300, 300);
          throw OwnError("the constructor's own error");
        });
        ADD_FAILURE() << runner.name << ": nothing was thrown";
      } catch (const OwnError& error) {
        EXPECT_STREQ(error.what(), "the constructor's own error") << runner.name;
      } catch (const std::exception& error) {
        ADD_FAILURE() << runner.name << " throws an exception of another type: " << error.what();
      }
      EXPECT_EQ(live_bytes::now().total, before) << "bytes alive after the error, " << runner.name;
      EXPECT_TRUE(torch::zeros({2}).is_cpu()) << runner.name << " still redirects after the error";
      const std::string next = error_of([&] { runner.run([] { nn::Linear(3, 3); }); });
      EXPECT_EQ(next, "") << "what the next " << runner.name << " throws";
    }
  });
}

TEST(T1_1_redirect, recording_inside_a_recording_is_an_error) {
  run_ranks(1, [](TestRank&) {
    for (const Runner& outer : runners()) {
      for (const Runner& inner : runners()) {
        const std::string what = inner.name + " inside " + outer.name;
        SCOPED_TRACE(what);
        std::string error;
        bool redirected = false;
        outer.run([&] {
          error = error_of([&] { inner.run([] { nn::Linear(3, 3); }); });
          redirected = torch::zeros({2}).is_meta();
        });
        expect_error_says(error, "outermost");
        EXPECT_TRUE(redirected) << what << ": the error of the inner one has ended the outer one";
        EXPECT_TRUE(torch::zeros({2}).is_cpu()) << what;
      }
    }
  });
}

TEST(T1_1_redirect, another_device_is_an_error_that_names_the_operation) {
  run_ranks(1, [](TestRank&) {
    for (const Runner& runner : runners()) {
      SCOPED_TRACE(runner.name);
      const std::string made =
          error_of([&] { runner.run([] { torch::zeros({2}, torch::kCUDA); }); });
      expect_error_says(made, "aten::zeros");
      expect_error_says(made, "cuda");
      const std::string moved =
          error_of([&] { runner.run([] { torch::zeros({2}).to(torch::kCUDA); }); });
      expect_error_says(moved, "aten::to");
      expect_error_says(moved, "cuda");
    }
  });
}

TEST(T1_1_redirect, access_through_a_pointer_is_an_error_that_says_so) {
  run_ranks(1, [](TestRank&) {
    const auto through_data_ptr = [] { *torch::zeros({2}).data_ptr<float>() = 1; };
    const auto through_accessor = [] {
      const at::Tensor tensor = torch::zeros({2});
      tensor.accessor<float, 1>()[0] = 1;
    };
    for (const Runner& runner : runners()) {
      SCOPED_TRACE(runner.name);
      for (const Body& body : {Body(through_data_ptr), Body(through_accessor)}) {
        const std::string error = error_of([&] { runner.run(body); });
        expect_error_says(error, "pointer");
      }
    }
  });
}
