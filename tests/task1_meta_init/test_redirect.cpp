#include <ATen/CPUGeneratorImpl.h>
#include <memory/live_bytes.h>
#include <meta_init.h>
#include <testing/multi_rank.h>
#include <torch/nn.h>

#include "constructions.h"

using namespace fsdp;

namespace {

namespace nn = torch::nn;

// What `body` throws; empty if nothing.
std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

std::vector<at::Tensor> tensors_of(const nn::Module& module) {
  std::vector<at::Tensor> tensors = module.parameters();
  for (const at::Tensor& buffer : module.buffers())
    tensors.push_back(buffer);
  return tensors;
}

}  // namespace

TEST(T1_1_redirect, parameters_and_buffers_are_on_the_meta_device) {
  run_ranks(1, [](TestRank&) {
    for (const auto& [name, construct] : modules_of_torch()) {
      std::shared_ptr<nn::Module> module;
      const DeferredInit init([&] { module = construct(); });
      for (const at::Tensor& tensor : tensors_of(*module))
        EXPECT_TRUE(tensor.is_meta())
            << name << ": a tensor of sizes " << tensor.sizes() << " takes " << tensor.nbytes()
            << " bytes on " << tensor.device();
    }
  });
}

TEST(T1_1_redirect, construction_keeps_only_generator_states_in_memory) {
  run_ranks(1, [](TestRank&) {
    const auto construct = [] {
      return nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(256, 4));
    };
    int64_t before = live_bytes::now().total;
    {
      const auto eager = construct();
      EXPECT_GT(live_bytes::now().total - before, 5'000'000);
    }
    before = live_bytes::now().total;
    nn::TransformerEncoderLayer layer{nullptr};
    const DeferredInit init([&] { layer = construct(); });
    const auto operations = static_cast<int64_t>(init.operations().size());
    EXPECT_LE(live_bytes::now().total - before, 5'056 * operations);
  });
}

TEST(T1_1_redirect, construct_on_meta_draws_no_random_number) {
  run_ranks(1, [](TestRank&) {
    torch::manual_seed(5);
    const at::Tensor expected = torch::rand({4});
    torch::manual_seed(5);
    construct_on_meta([] { nn::Linear(30, 20); });
    EXPECT_TRUE(torch::equal(torch::rand({4}), expected))
        << "construct_on_meta() moved the generator: whoever draws next draws other numbers";
  });
}

TEST(T1_1_redirect, construct_on_meta_draws_nothing_even_without_a_meta_kernel) {
  run_ranks(1, [](TestRank&) {
    auto own = at::make_generator<at::CPUGeneratorImpl>(9);
    torch::manual_seed(5);
    const auto states = [&] {
      const at::Tensor of_default = at::detail::getDefaultCPUGenerator().get_state();
      return torch::cat({of_default, own.get_state()});
    };
    const at::Tensor before = states();
    construct_on_meta([&] {
      torch::randperm(30);
      torch::randperm(30, own);
      torch::multinomial(torch::rand({8}), 3);
    });
    EXPECT_TRUE(torch::equal(states(), before)) << "construct_on_meta() moved a generator";
  });
}

TEST(T1_1_redirect, sizes_strides_dtype_and_requires_grad_are_as_in_eager_construction) {
  run_ranks(1, [](TestRank&) {
    for (const auto& [name, construct] : modules_of_torch()) {
      const auto eager = construct();
      std::shared_ptr<nn::Module> module;
      const DeferredInit init([&] { module = construct(); });
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
              a.to(torch::kDouble)};
    });
    for (size_t i = 0; i < made.size(); ++i)
      EXPECT_TRUE(made[i].is_meta()) << "tensor " << i << " was made on " << made[i].device();
  });
}

TEST(T1_1_redirect, an_explicit_cpu_device_is_redirected_too) {
  run_ranks(1, [](TestRank&) {
    std::vector<at::Tensor> made;
    const DeferredInit init([&] {
      made = {torch::zeros({2, 3}, torch::kCPU),
              torch::empty({2, 3}, torch::kCPU),
              torch::empty({1'000}, torch::kCPU),
              at::empty({1'000}, at::kCPU),
              torch::empty({4}, torch::device(torch::kCPU).dtype(torch::kDouble)),
              torch::randn({4}, torch::device(torch::kCPU).dtype(torch::kDouble)),
              torch::zeros({4}).to(torch::kCPU)};
    });
    for (size_t i = 0; i < made.size(); ++i)
      EXPECT_TRUE(made[i].is_meta()) << "tensor " << i << " was made on " << made[i].device();
  });
}

TEST(T1_1_redirect, operations_are_recorded_in_order_without_views) {
  run_ranks(1, [](TestRank&) {
    const DeferredInit init([] {
      at::Tensor a = torch::empty({4, 3});
      a.fill_(1);
      a.narrow(0, 1, 2).t().mul_(2);
      at::Tensor b = torch::zeros_like(a);
      b.add_(a[0]);
    });
    EXPECT_EQ(init.operations(),
              (std::vector<std::string>{"aten::empty", "aten::fill_", "aten::mul_",
                                        "aten::zeros_like", "aten::add_"}));
  });
}

TEST(T1_1_redirect, a_constructor_may_call_its_submodules_to_learn_sizes) {
  run_ranks(1, [](TestRank&) {
    int64_t features = 0;
    const DeferredInit init([&] {
      nn::Conv2d conv(nn::Conv2dOptions(3, 8, 3).stride(2));
      features = conv(torch::zeros({1, 3, 32, 32})).flatten().size(0);
    });
    EXPECT_EQ(features, 8 * 15 * 15);
  });
}

TEST(T1_1_redirect, operations_on_tensors_made_before_recording_run_at_once) {
  run_ranks(1, [](TestRank&) {
    at::Tensor outside = torch::arange(6);
    int64_t value = 0;
    const DeferredInit init([&] {
      outside.mul_(2);
      value = outside[3].item<int64_t>();
    });
    EXPECT_EQ(value, 6);
    EXPECT_TRUE(torch::equal(outside, torch::arange(6) * 2));
  });
}

TEST(T1_1_redirect, tensors_made_after_recording_are_real) {
  run_ranks(1, [](TestRank&) {
    {
      const DeferredInit init([] { nn::Linear(3, 3); });
    }
    EXPECT_TRUE(torch::zeros({2}).is_cpu());
    EXPECT_TRUE(nn::Linear(3, 3)->weight.is_cpu());
  });
}

TEST(T1_1_redirect, an_exception_of_the_constructor_ends_recording_and_is_rethrown) {
  run_ranks(1, [](TestRank&) {
    const int64_t before = live_bytes::now().total;
    const auto throwing = [] {
      const DeferredInit init([] {
        nn::Linear(300, 300);
        throw std::runtime_error("the constructor's own error");
      });
    };
    EXPECT_EQ(error_of(throwing), "the constructor's own error");
    EXPECT_EQ(live_bytes::now().total, before);
    EXPECT_TRUE(torch::zeros({2}).is_cpu());
    const DeferredInit again([] { nn::Linear(3, 3); });
    EXPECT_FALSE(again.operations().empty());
  });
}

TEST(T1_1_redirect, recording_inside_a_recording_is_an_error) {
  run_ranks(1, [](TestRank&) {
    const auto nested = [] {
      const DeferredInit outer([] { const DeferredInit inner([] { nn::Linear(3, 3); }); });
    };
    expect_error_says(error_of(nested), "outermost");
    EXPECT_TRUE(torch::zeros({2}).is_cpu());
  });
}

TEST(T1_1_redirect, another_device_is_an_error_that_names_the_operation) {
  run_ranks(1, [](TestRank&) {
    const auto on_cuda = [] { const DeferredInit init([] { torch::zeros({2}, torch::kCUDA); }); };
    const std::string error = error_of(on_cuda);
    expect_error_says(error, "aten::zeros");
    expect_error_says(error, "cuda");
  });
}

TEST(T1_1_redirect, access_through_a_pointer_is_an_error_that_says_so) {
  run_ranks(1, [](TestRank&) {
    const auto pointer = [] {
      const DeferredInit init([] { *torch::zeros({2}).data_ptr<float>() = 1; });
    };
    expect_error_says(error_of(pointer), "pointer");
  });
}
