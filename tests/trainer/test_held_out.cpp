#include <data/dataset.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include <common/expect_text.h>
#include <common/in_a_process.h>
#include <common/temporary_folder.h>

namespace fsdp {
namespace {

using Pairs = std::set<std::pair<int64_t, int64_t>>;

// The pairs a, b that the rows ask for.
Pairs pairs_of(const Batch& batch) {
  Pairs pairs;
  for (const at::Tensor& row : batch.inputs.unbind())
    pairs.emplace(row[0].item<int64_t>(), row[1].item<int64_t>());
  return pairs;
}

TEST(ModularDataset, asks_for_the_sum_after_the_third_token_alone) {
  in_a_process([] {
    const auto data = make_modular_dataset(7, 1);
    for (const Batch& batch : {data->batch(3, 100, kModularSeq), data->held_out(9, kModularSeq)}) {
      for (int64_t row = 0; row < batch.inputs.size(0); ++row) {
        const auto a = batch.inputs[row][0].item<int64_t>(),
                   b = batch.inputs[row][1].item<int64_t>();
        EXPECT_EQ(batch.inputs[row][2].item<int64_t>(), 7) << "the sign =";
        EXPECT_TRUE(torch::equal(batch.targets[row],
                                 torch::tensor({kNotAsked, kNotAsked, (a + b) % 7}, torch::kLong)));
      }
    }
    EXPECT_CONTAINS(error_of<std::invalid_argument>([&] { data->batch(0, 1, 4); }), "3 tokens");
  });
}

TEST(ModularDataset, every_pair_is_either_trained_on_or_among_the_fifth_that_is_held_out) {
  in_a_process([] {
    const auto data = make_modular_dataset(7, 1);
    const Pairs held_out = pairs_of(data->held_out(1000, kModularSeq));
    EXPECT_EQ(held_out.size(), 9U);
    Pairs trained;
    for (int64_t step = 0; step < 30; ++step)
      trained.merge(pairs_of(data->batch(step, 64, kModularSeq)));
    EXPECT_EQ(trained.size(), 40U);
    for (const auto& pair : trained)
      EXPECT_FALSE(held_out.contains(pair)) << pair.first << " + " << pair.second;
    EXPECT_EQ(data->held_out(4, kModularSeq).inputs.size(0), 4);
    const auto others = make_modular_dataset(7, 2)->held_out(1000, kModularSeq);
    EXPECT_NE(pairs_of(others), held_out) << "the seed chooses";
  });
}

TEST(PatternDataset, repeats_five_tokens_but_for_one_in_twenty) {
  in_a_process([] {
    const auto data = make_pattern_dataset(16384, 1);
    const Batch batch = data->batch(0, 64, 200);
    EXPECT_TRUE(torch::equal(batch.inputs.slice(1, 1), batch.targets.slice(1, 0, 199)));
    const auto repeated = batch.inputs.slice(1, 5).eq(batch.inputs.slice(1, 0, 195));
    // Both tokens are of the pattern in 0.95 ^ 2 of all places; 64 x 195 of them are looked at.
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

TEST(PatternDataset, holds_out_rows_of_the_same_pattern_that_no_step_draws) {
  in_a_process([] {
    const auto data = make_pattern_dataset(100, 1);
    const Batch held_out = data->held_out(8, 50);
    EXPECT_TRUE(torch::equal(held_out.inputs, data->held_out(8, 50).inputs));
    EXPECT_EQ(held_out.inputs.sizes(), at::IntArrayRef({8, 50}));
    for (int64_t step = 0; step < 20; ++step)
      EXPECT_FALSE(torch::equal(data->batch(step, 8, 50).inputs, held_out.inputs));
  });
}

TEST(TextDataset, holds_out_the_last_tenth) {
  const TemporaryFolder folder;
  std::string text(900, 'a');
  for (int i = 0; i < 100; ++i)
    text += static_cast<char>('b' + i / 10);
  const auto file = folder.write("text", text);
  in_a_process([&] {
    const TextDataset data(read_text_files({file}), 1);
    for (int64_t step = 0; step < 20; ++step)
      EXPECT_TRUE(data.batch(step, 50, 9).targets.eq('a').all().item<bool>());
    const Batch rows = data.held_out(5, 9);  // as far apart as there is text for
    EXPECT_TRUE(torch::equal(rows.inputs.select(1, 0),
                             torch::tensor({'b', 'd', 'f', 'h', 'j'}, torch::kLong)));
    EXPECT_TRUE(torch::equal(rows.targets, rows.inputs));
    EXPECT_EQ(data.held_out(1000, 9).inputs.size(0), 10) << "no byte twice";
    EXPECT_CONTAINS(error_of<std::invalid_argument>([&] { data.held_out(1, 100); }),
                    "only 100 held out");
  });
}

}  // namespace
}  // namespace fsdp
