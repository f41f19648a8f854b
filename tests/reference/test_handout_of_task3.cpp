#include <task3_forward_hooks/sharded_toy.h>

#include "handout.h"
#include "small_model.h"

namespace fsdp {
namespace {

TEST(HandoutOfTask3, prediction_1_counts_the_all_gathers_of_two_blocks) {
  const RankRun run = run_ranks(2, [](TestRank& rank) {
    ShardedToy toy(rank, std::make_shared<ToyModel>(2));
    (*toy.model)(toy_tokens(0));
    const auto log = rank.communicator()->take_log();
    std::string calls;
    int64_t bytes = 0;
    for (const Call& call : log) {
      calls += (calls.empty() ? "" : "; ") + call.name();
      bytes += call.bytes;
    }
    rank.observe("calls", calls);
    rank.observe("words", "each (W-1)/W x " + with_commas(toy.units[1]->layout().padded_numel) +
                              " x 4 = " + with_commas(log.at(0).bytes) + " bytes, " +
                              with_commas(bytes) + " in all.");
    const auto& root = toy.units[0]->layout();
    rank.observe("root", "starts at " + with_commas(root.offsets[1]) + " and ends at " +
                             with_commas(root.offsets[1] + 7) + ", padded to " +
                             with_commas(root.padded_numel));
    const auto& block = toy.units[1]->layout();
    rank.observe("block", "Block: offsets " + with_commas(block.offsets[0]) + ", " +
                              with_commas(block.offsets[1]) + " and " +
                              with_commas(block.offsets[2]) + ", end " +
                              with_commas(block.offsets[2] + 3) + ", padded to " +
                              with_commas(block.padded_numel));
    toy.model->order = {0, 1, 0};
    toy.units[0]->reshard();
    (*toy.model)(toy_tokens(0));
    rank.observe("fourth", rank.communicator()->take_log().at(3).name());
  });
  expect_said(3, "`" + run.at(0, "calls").get<std::string>() + "`, " +
                     run.at(0, "words").get<std::string>());
  expect_said(3, run.at(0, "root").get<std::string>());
  expect_said(3, run.at(0, "block").get<std::string>());
  expect_said(3, "With the order 0, 1, 0 there is a fourth one, `" +
                     run.at(0, "fourth").get<std::string>() + "`");
}

TEST(HandoutOfTask3, prediction_2_counts_the_bytes_of_four_blocks) {
  const RankRun run = run_ranks(4, [](TestRank& rank) {
    for (const bool reshard : {true, false}) {
      ShardedToy toy(rank, std::make_shared<ToyModel>(4), reshard);
      live_bytes::enter(Phase::forward);
      (*toy.model)(toy_tokens(0));
      const std::string how = reshard ? "resharded" : "kept";
      rank.observe("peak, " + how, with_commas(live_bytes::peak()[MemoryClass::gathered]));
      rank.observe("end, " + how, with_commas(live_bytes::now()[MemoryClass::gathered]));
      rank.observe("elements, " + how, with_commas(toy.units[1]->layout().padded_numel));
    }
  });
  const auto at = [&](const std::string& name) { return run.at(0, name).get<std::string>(); };
  expect_said(3, "so a unit has " + at("elements, resharded") + " elements, " +
                     at("end, resharded") + " bytes. At most the root and one block: " +
                     at("peak, resharded") + ". At the end the root: " + at("end, resharded") +
                     ". Without resharding all five units: " + at("peak, kept") +
                     ", at most and at the end.");
  EXPECT_EQ(at("peak, kept"), at("end, kept"));
}

TEST(HandoutOfTask3, prediction_3_names_the_units_that_an_exception_finds_unsharded) {
  const RankRun run = run_ranks(1, [](TestRank& rank) {
    ShardedToy toy(rank, std::make_shared<ToyModel>(2));
    std::string order;
    toy.model->register_forward_hook(
        [&](Module&, const at::Tensor&) {
          order += "root";
          return at::Tensor();
        },
        /*always_call=*/true);
    for (size_t i = 0; i < 2; ++i) {
      toy.model->blocks[i]->register_forward_hook(
          [&, i](Module&, const at::Tensor& output) {
            if (!output.defined()) order += "blocks" + std::to_string(i) + " and then ";
            return at::Tensor();
          },
          /*always_call=*/true);
    }
    std::string unsharded;
    toy.model->blocks[1]->register_forward_pre_hook([&](Module&, const at::Tensor&) -> at::Tensor {
      unsharded = toy.gathered();
      throw std::runtime_error("the block failed");
    });
    EXPECT_THROW((*toy.model)(toy_tokens(0)), std::runtime_error);
    rank.observe("unsharded", unsharded);
    rank.observe("order", order);
  });
  EXPECT_EQ(run.at(0, "unsharded"), "root blocks1 ");
  expect_said(3, "The root and blocks1; blocks0 is resharded already.");
  EXPECT_EQ(run.at(0, "order"), "blocks1 and then root");
  expect_said(3, "The exception leaves blocks1 first and then the root.");
}

TEST(HandoutOfTask3, prediction_4_counts_the_bytes_of_the_model_small) {
  for (const bool reshard : {true, false}) {
    const RankRun run = run_ranks(4, [&](TestRank& rank) {
      SmallModel small(rank, reshard, 1);
      live_bytes::enter(Phase::forward);
      small.loss();
      rank.observe("peak", with_commas(live_bytes::peak()[MemoryClass::gathered]));
    });
    expect_said(3, std::string(reshard ? "4 x (512,256 + 1,049,088) = "
                                       : "4 x (512,256 + 4 x 1,049,088) = ") +
                       run.at(0, "peak").get<std::string>());
  }
}

}  // namespace
}  // namespace fsdp
