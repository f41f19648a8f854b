#include <task3_forward_hooks/sharded_toy.h>

#include "small_model.h"

namespace fsdp {
namespace {

TEST(HandoutOfTask3,
     the_answer_to_prediction_1_of_task_3_lists_the_all_gathers_of_a_forward_of_two_blocks) {
  const Values run = observed_on(2, [](TestRank& rank) {
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
    rank.observe("elements", toy.units[1]->layout().padded_numel);
    rank.observe("each", log.at(0).bytes);
    rank.observe("in all", bytes);
    const auto& root = toy.units[0]->layout();
    rank.observe("of head", root.offsets[1]);
    rank.observe("end of head", root.offsets[1] + 7);
    rank.observe("root", root.padded_numel);
    const auto& block = toy.units[1]->layout();
    for (size_t i = 0; i < 3; ++i)
      rank.observe("offset " + std::to_string(i), block.offsets[i]);
    rank.observe("end", block.offsets[2] + 3);
    toy.model->order = {0, 1, 0};
    toy.units[0]->reshard();
    (*toy.model)(toy_tokens(0));
    rank.observe("fourth", rank.communicator()->take_log().at(3).name());
  });
  expect_said(3, run,
              "`{calls}`. In each of them a rank receives (W-1)/W x {elements} x 4 = {each} bytes, "
              "{in all} in all.");
  expect_said(3, run,
              "starts at {of head} and ends at {end of head}, and the unit is padded to {root}");
  expect_said(
      3, run,
      "A block has the offsets {offset 0}, {offset 1} and {offset 2} and ends at {end}, and "
      "is padded to {elements}");
  expect_said(3, run, "With the order 0, 1, 0 there is a fourth all-gather, `{fourth}`");
}

TEST(HandoutOfTask3,
     the_answer_to_prediction_2_of_task_3_has_the_gathered_bytes_of_a_forward_of_four_blocks) {
  const Values run = observed_on(4, [](TestRank& rank) {
    for (const bool reshard : {true, false}) {
      ShardedToy toy(rank, std::make_shared<ToyModel>(4), reshard);
      live_bytes::enter(Phase::forward);
      (*toy.model)(toy_tokens(0));
      const std::string how = reshard ? "resharded" : "kept";
      rank.observe("peak, " + how, live_bytes::peak()[MemoryClass::gathered]);
      rank.observe("end, " + how, live_bytes::now()[MemoryClass::gathered]);
      if (reshard) rank.observe("elements", toy.units[1]->layout().padded_numel);
    }
  });
  expect_said(
      3, run,
      "so a unit has {elements} elements, {end, resharded} bytes. At most, the root and one "
      "block are unsharded, {peak, resharded} bytes. At the end, the root is unsharded, "
      "{end, resharded} bytes. Without resharding, all five units are unsharded at the end. "
      "Together they have {peak, kept} bytes, and this number is also the maximum.");
  EXPECT_EQ(run.at("peak, kept"), run.at("end, kept"));
}

TEST(HandoutOfTask3,
     the_answer_to_prediction_3_of_task_3_names_the_units_that_are_unsharded_at_an_exception) {
  const Values run = observed_on(1, [](TestRank& rank) {
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
  EXPECT_EQ(run.at("unsharded"), "root blocks1 ");
  expect_said(3, {}, "The root and blocks1 are unsharded; blocks0 is resharded already.");
  EXPECT_EQ(run.at("order"), "blocks1 and then root");
  expect_said(3, {},
              "The exception leaves the forward of blocks1 and then the forward of the root.");
}

TEST(HandoutOfTask3,
     the_answer_to_prediction_4_of_task_3_has_the_gathered_bytes_of_a_forward_of_the_model_small) {
  expect_said(3, costs_of_small(4, true, 1), "4 x (512,256 + 1,049,088) = {gathered in forward}");
  expect_said(3, costs_of_small(4, false, 1),
              "4 x (512,256 + 4 x 1,049,088) = {gathered in forward}");
}

}  // namespace
}  // namespace fsdp
