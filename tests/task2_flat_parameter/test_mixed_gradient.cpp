#include <comm/tree_sum.h>
#include <memory/live_bytes.h>
#include <testing/expected_shards.h>

#include <array>

#include "mixed_unit.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T2_6_mixed_gradient);

MULTI_RANK_TEST(T2_6_mixed_gradient, collectives_have_the_dtypes_of_the_mixed_precision_policy) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    for (const auto& policy : kPolicies) {
      const auto unit = make_mixed_unit(rank, policy);
      rank.observe("calls of set_mixed_precision()" + with(policy),
                   typed_calls(*rank.communicator()));
      unit->unshard();
      collect_gradients(*unit, equal_gradients(1));
      reduce(*unit);
      rank.observe("calls" + with(policy), typed_calls(*rank.communicator()));
    }
  });
  const int64_t received = padded_numel(world_size()) / world_size() * (world_size() - 1);
  const auto in = [&](at::ScalarType dtype) {
    return std::string(c10::toString(dtype)) + " " +
           std::to_string(received * (dtype == at::kFloat ? 4 : 2)) + "; ";
  };
  for (const auto& policy : kPolicies) {
    expect_on_all_ranks(run, "calls of set_mixed_precision()" + with(policy), "");
    expect_on_all_ranks(run, "calls" + with(policy),
                        "all_gather unit " + in(policy.param_dtype) + "reduce_scatter unit " +
                            in(policy.reduce_dtype));
  }
}

constexpr std::array kClasses{MemoryClass::shards, MemoryClass::gathered, MemoryClass::gradients,
                              MemoryClass::sharded_gradients, MemoryClass::communication};

// Returns what observe_bytes() observes if `bytes` has the live bytes of each class of kClasses.
nlohmann::json by_class(const std::array<int64_t, kClasses.size()>& bytes) {
  nlohmann::json result;
  for (size_t i = 0; i < kClasses.size(); ++i)
    result[std::string("class ") + to_string(kClasses[i])] = bytes[i];
  return result;
}

void observe_bytes(TestRank& rank, const std::string& name, const LiveBytes& live) {
  std::array<int64_t, kClasses.size()> bytes{};
  for (size_t i = 0; i < kClasses.size(); ++i)
    bytes[i] = live[kClasses[i]];
  rank.observe(name, by_class(bytes));
}

MULTI_RANK_TEST(T2_6_mixed_gradient,
                a_16_bit_dtype_halves_bytes_and_the_rounded_shard_counts_in_memory_class_shards) {
  const std::string kWhat = "bytes of each class (communication: copies) ";
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    for (const auto& policy : kPolicies) {
      const auto unit = make_mixed_unit(rank, policy);
      live_bytes::enter(Phase::forward);
      unit->unshard();
      observe_bytes(rank, kWhat + "at the peak of unshard()" + with(policy), live_bytes::peak());
      unit->reshard();
      collect_gradients(*unit, equal_gradients(1));
      live_bytes::reset(Phase::backward);
      live_bytes::enter(Phase::backward);
      unit->reduce_gradient();
      observe_bytes(rank, kWhat + "after reduce_gradient()" + with(policy), live_bytes::now());
      unit->wait_for_reduction();
      observe_bytes(rank, kWhat + "after wait_for_reduction()" + with(policy), live_bytes::now());
      rank.observe("bytes of copies of the flat gradient" + with(policy),
                   live_bytes::peak(Phase::backward)[MemoryClass::communication]);
      // The communicator keeps the tensors alive that other ranks read in place. wait_for_readers()
      // waits until the other ranks have read them, and frees them.
      rank.communicator()->wait_for_readers();
    }
  });
  const int64_t flat = padded_numel(world_size()), shard = flat / world_size();
  for (const auto& policy : kPolicies) {
    const int64_t gathered = flat * policy.param_bytes(), gradient = flat * policy.reduce_bytes();
    const int64_t shards = shard * (policy.param_dtype == at::kFloat ? 4 : 6);
    expect_on_all_ranks(run, kWhat + "at the peak of unshard()" + with(policy),
                        by_class({shards, gathered, 0, 0, 0}));
    expect_on_all_ranks(run, kWhat + "after reduce_gradient()" + with(policy),
                        by_class({shards, 0, gradient, shard * 4, 0}));
    expect_on_all_ranks(run, kWhat + "after wait_for_reduction()" + with(policy),
                        by_class({shards, 0, 0, shard * 4, 0}));
    expect_on_all_ranks(run, "bytes of copies of the flat gradient" + with(policy), 0);
  }
}

MULTI_RANK_TEST(T2_6_mixed_gradient, a_gradient_is_rounded_once_and_then_added_up_in_fp32) {
  const RankRun oracle = run_oracle([](TestRank& rank) {
    for (const auto& policy : kPolicies) {
      std::vector<at::Tensor> means;
      for (size_t i = 0; i < kShapes.size(); ++i) {
        std::vector<at::Tensor> sent;
        for (int r = 0; r < world_size(); ++r) {
          const auto gradient = random_gradient(r, i).to(policy.param_dtype);
          sent.push_back(gradient.to(policy.reduce_dtype).to(at::kFloat));
        }
        means.push_back(sum_as_tree(sent) / world_size());
      }
      observe_expected_shards(rank, "gradient" + with(policy), means, world_size());
    }
  });
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    for (const auto& policy : kPolicies) {
      const auto unit = make_mixed_unit(rank, policy);
      std::vector<at::Tensor> gradients;
      for (size_t i = 0; i < kShapes.size(); ++i)
        gradients.push_back(random_gradient(rank.rank(), i));
      collect_gradients(*unit, gradients);
      reduce(*unit);
      observe_gradient(rank, *unit, "gradient" + with(policy));
    }
  });
  for (const auto& policy : kPolicies)
    expect_shards(run, oracle, "gradient" + with(policy));
}

// Expects that the sharded gradient, which is the mean over ranks, has the value `expected` if rank
// 0's gradient is `first` and the gradients of all other ranks are `other`.
void expect_sum(int world_size, const MixedPrecisionPolicy& policy, double first, double other,
                double expected) {
  const std::string name = "sharded gradient" + with(policy);
  const RankRun oracle = run_oracle([&](TestRank& rank) {
    observe_expected_shards(rank, name, equal_gradients(expected), world_size);
  });
  const RankRun run = run_ranks(world_size, [&](TestRank& rank) {
    const auto unit = make_mixed_unit(rank, policy);
    collect_gradients(*unit, equal_gradients(rank.rank() == 0 ? first : other));
    reduce(*unit);
    observe_gradient(rank, *unit, name);
  });
  expect_shards(run, oracle, name);
}

// In bf16, 256 + 1 is rounded to 256. Each gradient is multiplied by W, so dividing the sum by W
// rounds nothing.
MULTI_RANK_TEST(T2_6_mixed_gradient, a_sum_of_gradients_that_bf16_would_round_stays_exact) {
  const int w = world_size();
  expect_sum(w, kBf16, 256 * w, w, 256 + w - 1);
  expect_sum(w, {at::kFloat, at::kBFloat16}, 256 * w, w, 256 + w - 1);
}

// The largest number in fp16 is 65504, so a sum of two gradients of 60,000 overflows in fp16.
MULTI_RANK_TEST(T2_6_mixed_gradient, gradients_whose_sum_overflows_fp16_have_a_finite_mean) {
  expect_sum(world_size(), kFp16, 60'000, 60'000, 60'000);
  expect_sum(world_size(), {at::kFloat, at::kHalf}, 60'000, 60'000, 60'000);
}

MULTI_RANK_TEST(T2_6_mixed_gradient, gradients_of_several_passes_add_up_in_fp32) {
  const RankRun oracle = run_oracle([](TestRank& rank) {
    observe_expected_shards(rank, "256 + 1 + 1", equal_gradients(258), world_size());
    observe_expected_shards(rank, "256 + 1", equal_gradients(257), world_size());
  });
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_mixed_unit(rank, kBf16);
    const auto pass = [&](double value) {
      collect_gradients(*unit, equal_gradients(value));
      reduce(*unit);
    };
    pass(256);
    pass(1);
    observe_gradient(rank, *unit, "256 + 1");
    pass(1);
    observe_gradient(rank, *unit, "256 + 1 + 1");
  });
  expect_shards(run, oracle, "256 + 1");
  expect_shards(run, oracle, "256 + 1 + 1");
}

MULTI_RANK_TEST(T2_6_mixed_gradient,
                a_grad_has_the_dtype_of_its_parameter_as_long_as_it_is_not_widened) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    for (const auto& policy : kPolicies) {
      const auto unit = make_mixed_unit(rank, policy);
      collect_gradients(*unit, equal_gradients(1));
      std::vector<std::string> dtypes;
      for (const auto& parameter : unit->parameters())
        dtypes.emplace_back(c10::toString(parameter.tensor.grad().scalar_type()));
      rank.observe("dtype of each .grad that was collected and not widened" + with(policy), dtypes);
    }
  });
  for (const auto& policy : kPolicies) {
    expect_on_all_ranks(
        run, "dtype of each .grad that was collected and not widened" + with(policy),
        std::vector<std::string>(kShapes.size(), c10::toString(policy.param_dtype)));
  }
}

// The test adds to .grad in place, as autograd does in a second backward pass. If the sum were
// computed in bf16, 256 + 1 + 1 would be 256.
MULTI_RANK_TEST(T2_6_mixed_gradient, gradients_added_after_widening_add_up_in_the_wider_dtype) {
  const auto sum = [](const MixedPrecisionPolicy& policy) {
    at::Tensor total = at::full({}, 256, policy.accumulate_dtype());
    for (int pass = 0; pass < 2; ++pass)
      total += at::ones({}, policy.param_dtype);
    return total.to(policy.reduce_dtype).item<double>();
  };
  const RankRun oracle = run_oracle([&](TestRank& rank) {
    for (const auto& policy : kPolicies)
      observe_expected_shards(rank, "gradient" + with(policy), equal_gradients(sum(policy)),
                              world_size());
  });
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    for (const auto& policy : kPolicies) {
      const auto unit = make_mixed_unit(rank, policy);
      collect_gradients(*unit, equal_gradients(256));
      for (int pass = 0; pass < 2; ++pass) {
        unit->widen_gradients();
        unit->widen_gradients();  // does nothing, because the gradients are widened already
        for (size_t i = 0; i < kShapes.size(); ++i) {
          const at::Tensor& parameter = unit->parameters()[i].tensor;
          parameter.mutable_grad() += at::ones(kShapes[i], parameter.scalar_type());
          unit->mark_gradient_ready(i);
        }
      }
      rank.observe("dtype of .grad" + with(policy),
                   c10::toString(unit->parameters()[0].tensor.grad().scalar_type()));
      reduce(*unit);
      observe_gradient(rank, *unit, "gradient" + with(policy));
    }
  });
  for (const auto& policy : kPolicies) {
    expect_on_all_ranks(run, "dtype of .grad" + with(policy),
                        c10::toString(policy.accumulate_dtype()));
    expect_shards(run, oracle, "gradient" + with(policy));
  }
}

// In a second backward pass, some parameters may get a gradient for the first time.
MULTI_RANK_TEST(T2_6_mixed_gradient, a_gradient_that_comes_after_widening_is_reduced_too) {
  constexpr MixedPrecisionPolicy kWide{at::kBFloat16, at::kFloat};
  const RankRun oracle = run_oracle([](TestRank& rank) {
    observe_expected_shards(rank, "gradient", equal_gradients(3), world_size());
    observe_expected_shards(rank, "next gradient", equal_gradients(1), world_size());
  });
  const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
    const auto unit = make_mixed_unit(rank, kWide);
    unit->widen_gradients();  // does nothing, because there is no gradient yet
    for (size_t i = 0; i < kShapes.size(); ++i) {
      unit->parameters()[i].tensor.mutable_grad() = at::full(kShapes[i], 3, at::kBFloat16);
      unit->mark_gradient_ready(i);
      unit->widen_gradients();
    }
    reduce(*unit);
    observe_gradient(rank, *unit, "gradient");
    unit->clear_sharded_gradient();
    collect_gradients(*unit, equal_gradients(1));
    reduce(*unit);
    observe_gradient(rank, *unit, "next gradient");
  });
  expect_shards(run, oracle, "gradient");
  expect_shards(run, oracle, "next gradient");
}

MULTI_RANK_TEST(T2_6_mixed_gradient, in_16_bits_padding_and_missing_gradients_count_as_zero) {
  const RankRun oracle = run_oracle([](TestRank& rank) {
    auto gradients = equal_gradients(0);
    gradients[1].fill_(3);
    observe_expected_shards(rank, "gradient of p1 alone", gradients, world_size());
  });
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_mixed_unit(rank, kFp16);
    unit->parameters()[1].tensor.mutable_grad() = at::full(kShapes[1], 3, at::kHalf);
    unit->mark_gradient_ready(1);
    reduce(*unit);
    observe_gradient(rank, *unit, "gradient of p1 alone");
  });
  expect_shards(run, oracle, "gradient of p1 alone");
}

MULTI_RANK_TEST(T2_6_mixed_gradient, a_destroyed_unit_with_mixed_precision_leaves_no_bytes) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    rank.communicator();
    const int64_t before = live_bytes::now().total;
    {
      const auto unit = make_mixed_unit(rank, {at::kHalf, at::kBFloat16});
      unit->unshard();
      collect_gradients(*unit, equal_gradients(1));
      unit->reshard();
      reduce(*unit);
    }
    // The communicator keeps the tensors alive that other ranks read in place. wait_for_readers()
    // waits until the other ranks have read them, and frees them.
    rank.communicator()->wait_for_readers();
    rank.observe("bytes alive after the unit is gone", live_bytes::now().total - before);
  });
  expect_on_all_ranks(run, "bytes alive after the unit is gone", 0);
}

}  // namespace
}  // namespace fsdp
