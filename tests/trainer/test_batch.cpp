#include <data/dataset.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include <common/expect_text.h>
#include <common/in_a_process.h>

namespace fsdp {
namespace {

TEST(Batch, batch_part_returns_one_of_several_parts_with_equal_numbers_of_rows) {
  in_a_process([] {
    const auto tokens = torch::arange(24).view({6, 4});
    const Batch batch{tokens.narrow(1, 0, 3), tokens.narrow(1, 1, 3)};
    const Batch part = batch.part(1, 3);
    EXPECT_TRUE(torch::equal(part.inputs, tokens.slice(0, 2, 4).slice(1, 0, 3)));
    EXPECT_TRUE(torch::equal(part.targets, tokens.slice(0, 2, 4).slice(1, 1, 4)));
    EXPECT_CONTAINS(error_of<std::invalid_argument>([&] { batch.part(0, 4); }), "6 rows");
    EXPECT_THROW(batch.part(3, 3), std::invalid_argument);
    EXPECT_THROW(batch.part(-1, 3), std::invalid_argument);
  });
}

}  // namespace
}  // namespace fsdp
