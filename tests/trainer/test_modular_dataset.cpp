#include <data/dataset.h>
#include <gtest/gtest.h>

#include <set>

#include <common/expect_text.h>
#include <common/in_a_process.h>

namespace fsdp {
namespace {

using Pairs = std::set<std::pair<int64_t, int64_t>>;

// Returns the set of the pairs (a, b) with which the rows of the batch begin.
Pairs pairs_of(const Batch& batch) {
  Pairs pairs;
  for (const at::Tensor& row : batch.inputs.unbind())
    pairs.emplace(row[0].item<int64_t>(), row[1].item<int64_t>());
  return pairs;
}

TEST(ModularDataset, in_modular_addition_the_only_target_of_a_row_is_the_sum_after_the_sign) {
  in_a_process([] {
    const auto data = make_modular_dataset(7, 1);
    for (const Batch& batch : {data->batch(3, 100, kModularSeq), data->held_out(9, kModularSeq)}) {
      for (int64_t row = 0; row < batch.inputs.size(0); ++row) {
        const auto a = batch.inputs[row][0].item<int64_t>(),
                   b = batch.inputs[row][1].item<int64_t>();
        EXPECT_EQ(batch.inputs[row][2].item<int64_t>(), 7) << "the third token must be the sign =";
        EXPECT_TRUE(
            torch::equal(batch.targets[row],
                         torch::tensor({kIgnoreIndex, kIgnoreIndex, (a + b) % 7}, torch::kLong)));
      }
    }
    EXPECT_CONTAINS(error_of<std::invalid_argument>([&] { data->batch(0, 1, 4); }), "3 tokens");
  });
}

TEST(ModularDataset, each_pair_of_modular_addition_is_either_trained_on_or_held_out) {
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
    EXPECT_NE(pairs_of(others), held_out) << "another seed must hold out other pairs";
  });
}

}  // namespace
}  // namespace fsdp
