#include <data/dataset.h>
#include <gtest/gtest.h>

#include <common/in_a_process.h>

namespace fsdp {
namespace {

TEST(PublishedDataset,
     a_batch_of_the_published_dataset_equals_what_randint_draws_after_manual_seed) {
  in_a_process([] {
    const auto batch = make_published_dataset(1000, 42)->batch(3, 32, 127);
    torch::manual_seed(42 + 100 + 3);
    const auto tokens = torch::randint(0, 1000, {32, 128}, torch::kLong);
    EXPECT_TRUE(torch::equal(batch.inputs, tokens.slice(1, 0, 127)));
    EXPECT_TRUE(torch::equal(batch.targets, tokens.slice(1, 1, 128)));
  });
}

}  // namespace
}  // namespace fsdp
