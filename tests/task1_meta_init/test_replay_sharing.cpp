#include <memory/live_bytes.h>
#include <meta_init.h>
#include <testing/multi_rank.h>
#include <testing/tensor_bits.h>

#include "constructions.h"

using namespace fsdp;

namespace nn = torch::nn;

// What several calls of materialize_module() share.

TEST(T1_2_sharing, modules_that_are_materialized_alone_still_share_their_tensors) {
  const auto one_by_one = [](const Construct& construct) {
    std::shared_ptr<nn::Module> module;
    const DeferredInit init([&] { module = construct(); });
    for (const auto& child : module->children())
      init.materialize_module(*child);
    return module;
  };
  expect_as_eager({holder("two modules",
                          [](Holder& self) {
                            const auto child = [&](const std::string& name, at::Tensor weight) {
                              self.register_module(name, std::make_shared<Holder>([&](Holder& c) {
                                                     c.parameter("weight", weight);
                                                   }));
                            };
                            const at::Tensor weight = torch::arange(24.0f).view({4, 6});
                            child("encoder", weight);
                            child("decoder", weight.t());
                            child("first rows", weight.narrow(0, 0, 2));
                            child("copy", weight.clone());
                          })},
                  one_by_one);
}

TEST(T1_2_sharing, a_module_materialized_later_sees_a_change_of_shared_memory) {
  run_ranks(1, [](TestRank&) {
    std::shared_ptr<Holder> first, second;
    const DeferredInit init([&] {
      const at::Tensor weight = torch::ones({6});
      first = std::make_shared<Holder>([&](Holder& self) { self.buffer("weight", weight); });
      second = std::make_shared<Holder>([&](Holder& self) {
        self.buffer("half", weight.narrow(0, 3, 3));
        self.buffer("doubled", weight * 2);
      });
    });
    init.materialize_module(*first);
    first->buffers()[0].fill_(5);
    init.materialize_module(*second);
    EXPECT_EQ(values_of<float>(second->buffers()[0]), std::vector<float>(3, 5))
        << "half of the other module's weight, which was filled with 5";
    EXPECT_EQ(values_of<float>(second->buffers()[1]), std::vector<float>(6, 2))
        << "computed from the weight in the constructor, when it was 1";
  });
}

TEST(T1_2_sharing, a_materialized_module_is_freed_while_the_recording_lives) {
  run_ranks(1, [](TestRank&) {
    nn::Linear linear{nullptr};
    const DeferredInit init([&] { linear = nn::Linear(300, 300); });
    const int64_t before = live_bytes::now().total;
    init.materialize_module(*linear);
    linear = nullptr;
    EXPECT_EQ(live_bytes::now().total, before) << "bytes alive after the module is gone";
  });
}

TEST(T1_2_sharing, shared_memory_that_no_module_holds_any_more_is_made_again) {
  run_ranks(1, [](TestRank&) {
    std::vector<std::shared_ptr<Holder>> modules(3);
    const DeferredInit init([&] {
      const at::Tensor weight = torch::ones({6});
      for (auto& module : modules) {
        module = std::make_shared<Holder>(
            [&](Holder& self) { self.buffer("weight", weight.view({6})); });
      }
    });
    init.materialize_module(*modules[0]);
    modules[0]->buffers()[0].fill_(5);
    modules[0].reset();
    init.materialize_module(*modules[1]);
    ASSERT_TRUE(modules[1]->buffers()[0].is_cpu()) << "it is on the meta device still";
    EXPECT_EQ(values_of<float>(modules[1]->buffers()[0]), std::vector<float>(6, 1))
        << "the module whose weight was filled with 5 is gone; this is the weight of the next one";
    modules[1]->buffers()[0].fill_(7);
    init.materialize_module(*modules[2]);
    EXPECT_EQ(values_of<float>(modules[2]->buffers()[0]), std::vector<float>(6, 7))
        << "the second module's weight was filled with 7, and the third shares it";
  });
}

TEST(T1_2_sharing, two_recordings_do_not_know_of_each_other) {
  run_ranks(1, [](TestRank&) {
    torch::manual_seed(test_seed(5));
    const nn::Linear eager_first(4, 3), eager_second(4, 3);
    torch::manual_seed(test_seed(5));
    nn::Linear first{nullptr}, second{nullptr};
    const DeferredInit of_first([&] { first = nn::Linear(4, 3); });
    const DeferredInit of_second([&] { second = nn::Linear(4, 3); });
    of_first.materialize_module(*second);
    EXPECT_TRUE(second->weight.is_meta()) << "materialized by the recording of another module";
    of_second.materialize_module(*second);
    of_first.materialize_module(*first);
    EXPECT_TRUE(same_bits(first->weight, eager_first->weight)) << first->weight;
    EXPECT_TRUE(same_bits(first->bias, eager_first->bias)) << first->bias;
    EXPECT_TRUE(same_bits(second->weight, eager_second->weight)) << second->weight;
    EXPECT_TRUE(same_bits(second->bias, eager_second->bias)) << second->bias;
  });
}
