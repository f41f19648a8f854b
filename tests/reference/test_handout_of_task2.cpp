#include <flat_parameter.h>
#include <memory/live_bytes.h>
#include <testing/multi_rank.h>
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

TEST(HandoutOfTask2, prediction_1_lays_out_three_parameters) {
  std::string offsets, padded;
  for (const int64_t offset : flat_layout(kNumels, 1).offsets)
    offsets += (offsets.empty() ? "" : ", ") + std::to_string(offset);
  for (const int world_size : {1, 2, 3, 4}) {
    padded += (padded.empty() ? "" : ", ") +
              std::to_string(flat_layout(kNumels, world_size).padded_numel);
  }
  expect_said(2, "Offsets " + offsets + ".");
  expect_said(2, "Multiples of 16, 32, 48, 64: " + padded + ".");
  const int64_t numel = flat_layout(kNumels, 4).padded_numel;
  expect_said(
      2, std::to_string(numel) + " - 62 = " + std::to_string(numel - 62) + " elements of padding");
}

TEST(HandoutOfTask2, prediction_2_counts_the_bytes_of_a_unit) {
  const RankRun run = run_ranks(4, [](TestRank& rank) {
    const auto alive = [](MemoryClass cls) { return live_bytes::now()[cls]; };
    const auto observe = [&](const std::string& name, int64_t bytes) {
      rank.observe(name, std::to_string(bytes));
    };
    const auto unit = make_flat_parameter("unit", make_parameters(kNumels), rank.communicator());
    observe("shard", alive(MemoryClass::shards));
    unit->unshard();
    observe("gathered", alive(MemoryClass::gathered));
    unit->reshard();
    observe("resharded", alive(MemoryClass::shards) + alive(MemoryClass::gathered));
    for (size_t i = 0; i < kNumels.size(); ++i) {
      const at::Tensor& parameter = unit->parameters()[i].tensor;
      parameter.mutable_grad() = at::ones(parameter.sizes());
      unit->collect_gradient(i);
    }
    observe("collected", alive(MemoryClass::gradients));
    live_bytes::enter(Phase::backward);
    unit->reduce_gradient();
    observe("peak", live_bytes::peak()[MemoryClass::gradients]);
    observe("issued", alive(MemoryClass::gradients));
    unit->wait_for_reduction();
    observe("reduced", alive(MemoryClass::gradients));
    observe("sharded", alive(MemoryClass::sharded_gradients));
  });
  const auto at = [&](const std::string& name) { return run.at(0, name).get<std::string>(); };
  expect_said(2, at("shard") + "; " + at("shard") + " + " + at("gathered") + "; " +
                     at("resharded") + ". Gradients: 4 x 62 = " + at("collected") + "; " +
                     at("collected") + " + " + at("issued") + " = " + at("peak") +
                     ", while the first one is copied; " + at("issued") + "; " + at("reduced") +
                     ", and " + at("sharded") + " of sharded gradients.");
}

TEST(HandoutOfTask2, prediction_3_counts_what_a_rank_receives_for_a_block) {
  constexpr int64_t kBlock = 1'049'088;
  const RankRun run = run_ranks(4, [](TestRank& rank) {
    const auto unit = make_flat_parameter("unit", make_parameters({kBlock}), rank.communicator());
    for (int i = 0; i < 2; ++i) {
      unit->unshard();
      unit->reshard();
    }
    unit->reduce_gradient();
    unit->wait_for_reduction();
    int64_t bytes = 0;
    for (const Call& call : rank.communicator()->take_log()) {
      bytes += call.bytes;
      rank.observe("bytes of one " + std::to_string(call.sequence), call.bytes);
    }
    rank.observe("bytes", bytes);
    rank.communicator()->all_reduce(at::ones({kBlock}), "unit").wait();
    rank.observe("bytes of DDP", rank.communicator()->take_log().at(0).bytes);
  });
  const auto at = [&](const std::string& name) {
    return with_commas(run.at(0, name).get<int64_t>());
  };
  expect_said(2, "Three times 3/4 x 4 x " + with_commas(kBlock) + " = " + at("bytes of one 0") +
                     ": " + at("bytes") + " bytes.");
  expect_said(2, "DDP's all-reduce is twice that amount: " + at("bytes of DDP") + ".");
}

TEST(HandoutOfTask2, prediction_4_reads_which_rank_is_missing) {
  const auto text = [](int64_t value) { return std::to_string(value); };
  const int64_t mean = provenance::mean(4);
  expect_said(2, "1 + 5 + 25 + 125 = " + text(mean) + ";");
  expect_said(2, text(4 * mean) + " = 4 x " + text(mean) + " is the sum.");
  expect_said(2, text(mean - 25) + " = 1 + 5 + 125, rank 2's gradient is missing.");
  EXPECT_EQ(provenance::decode(static_cast<double>(mean - 25), 4), "rank 2's gradient is missing");
  expect_said(2, text(provenance::gradient(2, 4) / 4) + " is rank 2's own gradient alone");
}

// "Going further": the bytes of a unit in bf16.
TEST(HandoutOfTask2, problem_2_6_counts_half_of_the_bytes) {
  const RankRun run = run_ranks(4, [](TestRank& rank) {
    const auto observe = [&](MemoryClass cls) {
      rank.observe(to_string(cls), std::to_string(live_bytes::now()[cls]));
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
    for (const Call& call : rank.communicator()->take_log())
      rank.observe("received " + std::to_string(call.sequence), std::to_string(call.bytes));
  });
  const auto at = [&](const std::string& name) { return run.at(0, name).get<std::string>(); };
  expect_said(2, "Shards: 128 + 64 = " + at("shards") + ". Gathered: " + at("gathered") +
                     ". Flat gradient: " + at("gradients") +
                     ", sharded gradient: " + at("sharded_gradients") + ",");
  expect_said(2, "Each collective brings 3/4 x 256 = " + at("received 0") + ".");
  EXPECT_EQ(at("received 1"), at("received 0"));
}

TEST(HandoutOfTask2, problem_2_6_adds_up_small_updates) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    const auto unit = make_flat_parameter("unit", make_parameters(kNumels), rank.communicator());
    unit->set_mixed_precision({at::kBFloat16, at::kBFloat16});
    const auto name = [](int steps) { return "after " + std::to_string(steps); };
    for (int steps = 0; steps <= 12; ++steps) {
      unit->unshard();
      rank.observe(name(steps), unit->parameters()[0].tensor.max().item<double>());
      unit->reshard();
      rank.communicator()->wait_for_readers();
      unit->shard().add_(1. / 1024);
    }
    const at::Tensor bf16 = at::ones({1}, at::kBFloat16);
    for (int steps = 0; steps < 12; ++steps)
      bf16.add_(1. / 1024);
    rank.observe("in bf16", bf16.item<double>());
  });
  const auto after = [&](int steps) {
    std::ostringstream text;
    text.precision(10);
    text << run.at(0, "after " + std::to_string(steps)).get<double>();
    return text.str();
  };
  expect_said(2, "After 4 steps the parameter is " + after(4) + ":");
  expect_said(2, "After 5 steps it is " + after(5) + ". After 12 steps it is " + after(12) + ",");
  EXPECT_EQ(run.at(0, "in bf16").get<double>(), 1);  // "would stay 1 for ever"
}

}  // namespace
}  // namespace fsdp
