#include <memory/live_bytes.h>
#include <meta_init.h>

#include "constructions.h"

using namespace fsdp;

namespace nn = torch::nn;

// Tests of the memory that several calls of materialize_module() share.

TEST(T1_2_sharing, modules_materialized_one_by_one_still_share_their_tensors) {
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

TEST(T1_2_sharing, a_change_of_a_shared_tensor_is_seen_by_a_module_that_is_materialized_later) {
  const std::string half = "half of the other module's weight, which was filled with 5",
                    doubled = "computed from the weight in the constructor, when it was 1";
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
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
    rank.observe(half, numbers_of(second->buffers()[0]));
    rank.observe(doubled, numbers_of(second->buffers()[1]));
  });
  expect_on_all_ranks(run, {{half, {5, 5, 5}}, {doubled, std::vector<float>(6, 2)}});
}

TEST(T1_2_sharing, a_materialized_module_can_be_freed_before_its_deferred_init) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    nn::Linear linear{nullptr};
    const DeferredInit init([&] { linear = nn::Linear(300, 300); });
    const int64_t before = live_bytes::now().total;
    init.materialize_module(*linear);
    linear = nullptr;
    rank.observe("bytes alive after the module is gone", live_bytes::now().total - before);
  });
  expect_on_all_ranks(run, "bytes alive after the module is gone", 0);
}

TEST(T1_2_sharing, a_shared_tensor_whose_modules_are_gone_is_replayed_again) {
  const std::string second =
                        "the weight of the second module; the first one, which is gone, had "
                        "filled it with 5",
                    third =
                        "the weight of the third module, which shares it; the second module's "
                        "weight was filled with 7";
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
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
    rank.observe(second, numbers_of(modules[1]->buffers()[0]));
    modules[1]->buffers()[0].fill_(7);
    init.materialize_module(*modules[2]);
    rank.observe(third, numbers_of(modules[2]->buffers()[0]));
  });
  expect_on_all_ranks(run, {{second, std::vector<float>(6, 1)}, {third, std::vector<float>(6, 7)}});
}

TEST(T1_2_sharing, two_deferred_inits_replay_independently_of_each_other) {
  const auto observe = [](TestRank& rank, const nn::Linear& first, const nn::Linear& second) {
    rank.observe("weight of the first module", first->weight);
    rank.observe("bias of the first module", first->bias);
    rank.observe("weight of the second module", second->weight);
    rank.observe("bias of the second module", second->bias);
  };
  const RankRun eager = run_oracle([&](TestRank& rank) {
    torch::manual_seed(test_seed(5));
    const nn::Linear first(4, 3);
    observe(rank, first, nn::Linear(4, 3));
  });
  const RankRun run = run_ranks(1, [&](TestRank& rank) {
    torch::manual_seed(test_seed(5));
    nn::Linear first{nullptr}, second{nullptr};
    const DeferredInit of_first([&] { first = nn::Linear(4, 3); });
    const DeferredInit of_second([&] { second = nn::Linear(4, 3); });
    of_first.materialize_module(*second);
    rank.observe("another recording leaves the weight on", device_name(second->weight));
    of_second.materialize_module(*second);
    of_first.materialize_module(*first);
    observe(rank, first, second);
  });
  expect_on_all_ranks(run, "another recording leaves the weight on", "meta");
  expect_as(run, eager);
}
