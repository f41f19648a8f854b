#include <flat_parameter.h>
#include <memory/live_bytes.h>
#include <testing/provenance.h>

#include "handout.h"

namespace fsdp {
namespace {

const std::vector<int64_t> kNumels{35, 3, 24};

std::vector<NamedParameter> make_parameters(const std::vector<int64_t>& numels) {
  std::vector<NamedParameter> parameters;
  for (size_t i = 0; i < numels.size(); ++i) {
    parameters.push_back({"p" + std::to_string(i), at::ones({numels[i]})});
    parameters.back().tensor.set_requires_grad(true);
  }
  return parameters;
}

TEST(HandoutOfTask2,
     the_answer_to_prediction_1_of_task_2_has_the_computed_flat_layout_of_three_parameters) {
  std::string offsets, padded;
  for (const int64_t offset : flat_layout(kNumels, 1).offsets)
    offsets += (offsets.empty() ? "" : ", ") + std::to_string(offset);
  for (const int world_size : {1, 2, 3, 4}) {
    padded += (padded.empty() ? "" : ", ") +
              std::to_string(flat_layout(kNumels, world_size).padded_numel);
  }
  expect_said(2, {}, "The offsets are " + offsets + ".");
  expect_said(2, {}, "Rounded up to a multiple of 16, 32, 48 or 64, this is " + padded + ".");
  const int64_t numel = flat_layout(kNumels, 4).padded_numel;
  expect_said(2, {{"numel", numel}, {"padding", numel - 62}},
              "{numel} - 62 = {padding} elements of padding");
}

TEST(HandoutOfTask2,
     the_answer_to_prediction_2_of_task_2_has_the_live_bytes_of_a_unit_after_each_call) {
  const Values run = observed_on(4, [](TestRank& rank) {
    const auto alive = [](MemoryClass cls) { return live_bytes::now()[cls]; };
    const auto unit = make_flat_parameter("unit", make_parameters(kNumels), rank.communicator());
    rank.observe("shard", alive(MemoryClass::shards));
    unit->unshard();
    rank.observe("gathered", alive(MemoryClass::gathered));
    unit->reshard();
    rank.observe("resharded", alive(MemoryClass::shards) + alive(MemoryClass::gathered));
    for (size_t i = 0; i < kNumels.size(); ++i) {
      const at::Tensor& parameter = unit->parameters()[i].tensor;
      parameter.mutable_grad() = at::ones(parameter.sizes());
      unit->mark_gradient_ready(i);
    }
    rank.observe("collected", alive(MemoryClass::gradients));
    live_bytes::enter(Phase::backward);
    unit->reduce_gradient();
    rank.observe("peak", live_bytes::peak()[MemoryClass::gradients]);
    rank.observe("issued", alive(MemoryClass::gradients));
    unit->wait_for_reduction();
    rank.observe("reduced", alive(MemoryClass::gradients));
    rank.observe("sharded", alive(MemoryClass::sharded_gradients));
  });
  expect_said(
      2, run,
      "After construction {shard} bytes are alive, after `unshard()` {shard} + {gathered}, after "
      "`reshard()` {resharded}. Of class `gradients`, 4 x 62 = {collected} bytes are alive when all "
      "three gradients are collected. At most {collected} + {issued} = {peak} bytes are alive, "
      "while the first gradient is copied. After `reduce_gradient()`, {issued} bytes are alive. "
      "After `wait_for_reduction()`, {reduced} bytes are alive, and {sharded} bytes of class "
      "`sharded_gradients`.");
}

TEST(HandoutOfTask2,
     the_answer_to_prediction_3_of_task_2_has_the_bytes_that_a_rank_receives_for_a_block) {
  constexpr int64_t kBlock = 1'049'088;
  const Values run = observed_on(4, [&](TestRank& rank) {
    const auto unit = make_flat_parameter("unit", make_parameters({kBlock}), rank.communicator());
    for (int i = 0; i < 2; ++i) {
      unit->unshard();
      unit->reshard();
    }
    unit->reduce_gradient();
    unit->wait_for_reduction();
    int64_t bytes = 0;
    const auto log = rank.communicator()->take_log();
    for (const Call& call : log)
      bytes += call.bytes;
    rank.observe("block", kBlock);
    rank.observe("one", log.at(0).bytes);
    rank.observe("bytes", bytes);
    rank.communicator()->all_reduce(at::ones({kBlock}), "unit").wait();
    rank.observe("DDP", rank.communicator()->take_log().at(0).bytes);
  });
  expect_said(2, run,
              "the rank receives 3/4 x 4 x {block} = {one} bytes, together {bytes} bytes. In DDP's "
              "all-reduce it receives twice {one}: {DDP} bytes.");
}

TEST(HandoutOfTask2,
     the_answer_to_prediction_4_of_task_2_names_the_rank_whose_gradient_a_wrong_mean_lacks) {
  const int64_t mean = provenance::mean(4);
  const Values values{{"mean", mean},
                      {"sum", 4 * mean},
                      {"without 2", mean - 25},
                      {"alone", provenance::gradient(2, 4) / 4}};
  expect_said(2, values, "1 + 5 + 25 + 125 = {mean};");
  expect_said(2, values, "{sum} = 4 x {mean} is the sum.");
  expect_said(2, values, "{without 2} = 1 + 5 + 125, rank 2's gradient is missing.");
  EXPECT_EQ(provenance::decode(static_cast<double>(mean - 25), 4), "rank 2's gradient is missing");
  expect_said(2, values, "{alone} is rank 2's own gradient alone");
}

TEST(HandoutOfTask2, the_answer_in_problem_2_6_of_task_2_has_the_bytes_of_a_unit_in_bf16) {
  const Values run = observed_on(4, [](TestRank& rank) {
    const auto observe = [&](MemoryClass cls) {
      rank.observe(to_string(cls), live_bytes::now()[cls]);
    };
    const auto unit = make_flat_parameter("unit", make_parameters(kNumels), rank.communicator());
    unit->set_mixed_precision({at::kBFloat16, at::kBFloat16});
    observe(MemoryClass::shards);
    unit->unshard();
    observe(MemoryClass::gathered);
    unit->reduce_gradient();
    observe(MemoryClass::gradients);
    unit->wait_for_reduction();
    observe(MemoryClass::sharded_gradients);
    const auto log = rank.communicator()->take_log();
    rank.observe("received", log.at(0).bytes);
    EXPECT_EQ(log.at(1).bytes, log.at(0).bytes);
  });
  expect_said(2, run,
              "The shards have 128 + 64 = {shards} bytes, and the gathered parameters have "
              "{gathered}. The flat gradient has {gradients}, and the sharded gradient has "
              "{sharded_gradients},");
  expect_said(2, run, "A rank receives 3/4 x 256 = {received} bytes in each collective.");
}

TEST(HandoutOfTask2,
     the_answer_in_problem_2_6_of_task_2_has_bf16_values_after_small_updates_of_an_fp32_shard) {
  const Values run = observed_on(1, [](TestRank& rank) {
    const auto unit = make_flat_parameter("unit", make_parameters(kNumels), rank.communicator());
    unit->set_mixed_precision({at::kBFloat16, at::kBFloat16});
    for (int steps = 0; steps <= 12; ++steps) {
      unit->unshard();
      std::ostringstream text;
      text.precision(10);
      text << unit->parameters()[0].tensor.max().item<double>();
      rank.observe("after " + std::to_string(steps), text.str());
      unit->reshard();
      rank.communicator()->wait_for_readers();
      unit->shard().add_(1. / 1024);
    }
    const at::Tensor bf16 = at::ones({1}, at::kBFloat16);
    for (int steps = 0; steps < 12; ++steps)
      bf16.add_(1. / 1024);
    // The handout says that the value of a bf16 parameter "would stay 1 for ever".
    EXPECT_EQ(bf16.item<double>(), 1);
  });
  expect_said(2, run, "After 4 steps the parameter is {after 4}:");
  expect_said(2, run, "After 5 steps it is {after 5}. After 12 steps it is {after 12}:");
}

}  // namespace
}  // namespace fsdp
