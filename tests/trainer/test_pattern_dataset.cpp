#include <data/dataset.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include <common/in_a_process.h>

namespace fsdp {
namespace {

TEST(PatternDataset,
     rows_of_the_pattern_dataset_repeat_five_tokens_except_for_one_token_in_twenty) {
  in_a_process([] {
    const auto data = make_pattern_dataset(16384, 1);
    const Batch batch = data->batch(0, 64, 200);
    EXPECT_TRUE(torch::equal(batch.inputs.slice(1, 1), batch.targets.slice(1, 0, 199)));
    const auto repeated = batch.inputs.slice(1, 5).eq(batch.inputs.slice(1, 0, 195));
    // A token follows the pattern with a probability of 0.95. Two tokens that are five places apart
    // are equal if both follow it: with a probability of 0.95 ^ 2. The batch has 64 x 195 such
    // pairs.
    EXPECT_NEAR(repeated.to(at::kDouble).mean().item<double>(), 0.9025, 0.02);
    std::map<int64_t, int> counts;
    for (const at::Tensor& token : batch.inputs.flatten().unbind())
      ++counts[token.item<int64_t>()];
    const auto frequent = std::count_if(counts.begin(), counts.end(),
                                        [](const auto& count) { return count.second > 1000; });
    EXPECT_EQ(frequent, kPatternPeriod);
    EXPECT_FALSE(torch::equal(batch.inputs[0].slice(0, 0, 20), batch.inputs[1].slice(0, 0, 20)));
  });
}

TEST(PatternDataset,
     the_batches_of_training_steps_differ_from_the_held_out_batch_of_the_pattern_dataset) {
  in_a_process([] {
    const auto data = make_pattern_dataset(100, 1);
    const Batch held_out = data->held_out(8, 50);
    EXPECT_TRUE(torch::equal(held_out.inputs, data->held_out(8, 50).inputs));
    EXPECT_EQ(held_out.inputs.sizes(), at::IntArrayRef({8, 50}));
    for (int64_t step = 0; step < 20; ++step)
      EXPECT_FALSE(torch::equal(data->batch(step, 8, 50).inputs, held_out.inputs));
  });
}

}  // namespace
}  // namespace fsdp
