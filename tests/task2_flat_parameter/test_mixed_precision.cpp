#include <nn/gradient_hook.h>
#include <testing/expected_shards.h>
#include <testing/shared_flag.h>

#include "mixed_unit.h"

namespace fsdp {
namespace {

MULTI_RANK_SUITE(T2_6_mixed_precision);

// Returns a run with the expected values: for each policy it has observed each parameter,
// multiplied by `factor` and rounded once to param_dtype, under a name such as "p0; param_dtype
// Half, ...".
RankRun rounded_values(const std::vector<std::vector<int64_t>>& shapes, double factor = 1) {
  return run_oracle([&](TestRank& rank) {
    for (const auto& policy : kPolicies)
      for (const auto& [name, tensor] : make_parameters(shapes))
        rank.observe(name + with(policy), (tensor.detach() * factor).to(policy.param_dtype));
  });
}

void expect_parameters(const RankRun& run, const RankRun& oracle, size_t count) {
  for (const auto& policy : kPolicies) {
    for (size_t i = 0; i < count; ++i) {
      const std::string name = "p" + std::to_string(i) + with(policy);
      expect_on_all_ranks(run, name, oracle.at(0, name));
    }
  }
}

MULTI_RANK_TEST(T2_6_mixed_precision, in_16_bits_unshard_rounds_each_parameter_value_once) {
  for (const auto& shapes : {kTinyShapes, kShapes}) {
    const RankRun run = run_ranks(world_size(), [&](TestRank& rank) {
      for (const auto& policy : kPolicies) {
        const auto unit = make_mixed_unit(rank, policy, shapes);
        unit->unshard();
        observe_parameters(rank, *unit, with(policy));
      }
    });
    expect_parameters(run, rounded_values(shapes), shapes.size());
  }
}

MULTI_RANK_TEST(T2_6_mixed_precision, unshard_in_16_bits_leaves_the_fp32_shard_unchanged) {
  const RankRun oracle = run_oracle([](TestRank& rank) {
    observe_expected_shards(rank, "shard", values_of(make_parameters(kShapes)), world_size());
  });
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    for (const auto& policy : kPolicies) {
      const auto unit = make_mixed_unit(rank, policy);
      unit->unshard();
      unit->reshard();
      rank.observe("shard" + with(policy), unit->shard().nan_to_num(0), places_of_shard(*unit));
    }
  });
  for (const auto& policy : kPolicies)
    expect_on_each_rank(run, "shard" + with(policy),
                        [&](int r) { return oracle.at(0, "shard " + std::to_string(r)); });
}

MULTI_RANK_TEST(T2_6_mixed_precision, the_next_gather_rounds_what_a_step_has_written_to_the_shard) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    for (const auto& policy : kPolicies) {
      const auto unit = make_mixed_unit(rank, policy);
      unit->unshard();
      unit->reshard();
      rank.communicator()->wait_for_readers();
      unit->shard().mul_(1.5);
      unit->unshard();
      unit->reshard();
      rank.communicator()->wait_for_readers();
      // Like a write by a collective, this write changes no version counter.
      unit->shard().variable_data().mul_(2);
      unit->unshard();
      observe_parameters(rank, *unit, with(policy));
    }
  });
  expect_parameters(run, rounded_values(kShapes, 3), kShapes.size());
}

// The test adds 2^-10 in each step. 1 + 2^-7 is the next number after 1 in bf16, so a sum in bf16
// would always stay 1.
MULTI_RANK_TEST(T2_6_mixed_precision, updates_that_are_too_small_for_bf16_add_up_in_the_shard) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_mixed_unit(rank, kBf16);
    std::vector<double> values;
    unit->shard().fill_(1);
    for (int step = 0; step <= 8; ++step) {
      unit->unshard();
      values.push_back(unit->parameters()[2].tensor.max().item<double>());
      unit->reshard();
      rank.communicator()->wait_for_readers();
      unit->shard().add_(1. / 1024);
    }
    rank.observe("p2 after 0, 1, 2, ... steps of 2^-10", values);
  });
  expect_on_all_ranks(run, "p2 after 0, 1, 2, ... steps of 2^-10",
                      {1, 1, 1, 1, 1, 1.0078125, 1.0078125, 1.0078125, 1.0078125});
}

MULTI_RANK_TEST(T2_6_mixed_precision, mixed_precision_keeps_the_modules_parameter_variables) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    auto parameters = make_parameters(kShapes);
    parameters[1].tensor.set_requires_grad(false);
    const auto unit = make_flat_parameter("unit", parameters, rank.communicator());
    unit->set_mixed_precision(kFp16);
    const at::Tensor& first = parameters[0].tensor;
    for (size_t i = 0; i < 3; ++i) {
      const at::Tensor& held = parameters[i].tensor;
      const std::string name = "p" + std::to_string(i);
      rank.observe(name + " is the module's tensor, a leaf, contiguous, in the storage of p0",
                   held.is_same(unit->parameters().at(i).tensor) && held.is_leaf() &&
                       held.is_contiguous() && held.storage().is_alias_of(first.storage()));
      rank.observe("dtype of " + name, c10::toString(held.scalar_type()));
      rank.observe(name + " requires a gradient", held.requires_grad());
      rank.observe("sizes of " + name, held.sizes().vec());
      rank.observe("offset of " + name, held.storage_offset());
    }
    rank.observe("bytes under the parameters of a sharded unit", first.storage().nbytes());
  });
  for (size_t i = 0; i < 3; ++i) {
    const std::string name = "p" + std::to_string(i);
    expect_on_all_ranks(
        run, name + " is the module's tensor, a leaf, contiguous, in the storage of p0", true);
    expect_on_all_ranks(run, "dtype of " + name, "Half");
    expect_on_all_ranks(run, name + " requires a gradient", i != 1);
    expect_on_all_ranks(run, "sizes of " + name, kShapes[i]);
    expect_on_all_ranks(run, "offset of " + name, kOffsets[i]);
  }
  expect_on_all_ranks(run, "bytes under the parameters of a sharded unit", 0);
}

MULTI_RANK_TEST(T2_6_mixed_precision, autograd_computes_in_param_dtype) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    auto parameters = make_parameters(kShapes);
    const auto unit = make_flat_parameter("unit", parameters, rank.communicator());
    int calls = 0;
    register_post_accumulate_grad_hook(parameters[0].tensor, [&] { ++calls; });
    parameters[0].tensor.register_hook([&](const at::Tensor&) { ++calls; });
    unit->set_mixed_precision(kBf16);
    unit->unshard();
    const at::Tensor loss = parameters[0].tensor.square().sum();
    unit->reshard();
    unit->unshard();
    loss.backward();
    rank.observe("calls of two hooks that were registered before", calls);
    rank.observe("gradient", parameters[0].tensor.grad());
  });
  const RankRun oracle = run_oracle([](TestRank& rank) {
    const at::Tensor value = values_of(make_parameters(kShapes))[0];
    rank.observe("gradient", value.to(at::kBFloat16) * 2);
  });
  expect_on_all_ranks(run, "calls of two hooks that were registered before", 2);
  expect_on_all_ranks(run, "gradient", oracle.at(0, "gradient"));
}

// In this run, rank 0 waits for an all-gather, reshards and continues before the other ranks have
// read the input that rank 0 gave to this all-gather. If `again` is true, rank 0 even issues its
// next all-gather before the others have read.
void expect_a_late_rank_reads(int world_size, bool again) {
  const SharedFlag done;
  const RankRun run = run_ranks(world_size, [&](TestRank& rank) {
    const auto unit = make_mixed_unit(rank, kBf16);
    unit->unshard_async();
    if (rank.rank() != 0) done.wait();
    unit->unshard();
    rank.observe("p0", unit->parameters()[0].tensor.detach());
    unit->reshard();
    if (again) unit->unshard_async();
    if (rank.rank() == 0) done.set();
    if (again) unit->unshard();
  });
  const RankRun oracle = rounded_values({kShapes[0]});
  expect_on_all_ranks(run, "p0", oracle.at(0, "p0" + with(kBf16)));
}

MULTI_RANK_TEST(T2_6_mixed_precision,
                a_late_rank_reads_the_rounded_shard_of_a_rank_that_has_continued) {
  expect_a_late_rank_reads(world_size(), /*again=*/false);
  expect_a_late_rank_reads(world_size(), /*again=*/true);
}

MULTI_RANK_TEST(T2_6_mixed_precision, the_mixed_precision_policy_that_was_set_last_applies) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    for (const auto& policy : kPolicies) {
      const auto unit = make_mixed_unit(rank, kFp16);
      unit->set_mixed_precision(policy);
      unit->unshard();
      observe_parameters(rank, *unit, with(policy));
      collect_gradients(*unit, equal_gradients(1));
      reduce(*unit);
      const Call call = rank.communicator()->take_log().back();
      rank.observe("dtype of the reduce-scatter" + with(policy), c10::toString(call.dtype));
    }
  });
  expect_parameters(run, rounded_values(kShapes), kShapes.size());
  for (const auto& policy : kPolicies)
    expect_on_all_ranks(run, "dtype of the reduce-scatter" + with(policy),
                        c10::toString(policy.reduce_dtype));
}

MULTI_RANK_TEST(T2_6_mixed_precision, a_refused_mixed_precision_policy_changes_nothing) {
  const RankRun run = run_ranks(world_size(), [](TestRank& rank) {
    const auto unit = make_unit(rank);
    const auto set = [&](const std::string& when, const MixedPrecisionPolicy& policy) {
      rank.observe("thrown " + when, thrown_by([&] { unit->set_mixed_precision(policy); }));
    };
    set("for fp64", {at::kDouble, at::kFloat});
    set("for int32", {at::kBFloat16, at::kInt});
    unit->unshard_async();
    set("while the unit is gathering", kBf16);
    unit->unshard();
    set("while the unit is unsharded", kBf16);
    unit->reshard();
    collect(*unit, 1, rank);
    set("when a gradient was collected", kBf16);
    reduce(*unit);
    unit->unshard();
    rank.observe("calls", typed_calls(*rank.communicator()));
    observe_parameters(rank, *unit, "");
  });
  expect_error(run, "thrown for fp64", {"std::invalid_argument", "Double"});
  expect_error(run, "thrown for int32", {"std::invalid_argument", "Int"});
  for (const std::string when : {"while the unit is gathering", "while the unit is unsharded",
                                 "when a gradient was collected"})
    expect_error(run, "thrown " + when, {"std::logic_error"});
  const int64_t received = padded_numel(world_size()) / world_size() * (world_size() - 1) * 4;
  const std::string gather = "all_gather unit Float " + std::to_string(received) + "; ";
  expect_on_all_ranks(
      run, "calls",
      gather + "reduce_scatter unit Float " + std::to_string(received) + "; " + gather);
  const RankRun oracle = rounded_values(kShapes);
  for (const std::string name : {"p0", "p1", "p2"})
    expect_on_all_ranks(run, name, oracle.at(0, name + with({})));
}

}  // namespace
}  // namespace fsdp
