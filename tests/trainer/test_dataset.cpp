#include <data/dataset.h>
#include <gtest/gtest.h>

#include <functional>

#include <common/in_a_process.h>
#include <common/temporary_folder.h>

#include "counting_bytes.h"

namespace fsdp {
namespace {

TEST(Dataset, a_batch_depends_on_step_and_seed_and_not_on_the_default_generator) {
  const TemporaryFolder folder;
  const Text text = read_text_files({folder.write("text", counting_bytes())});
  in_a_process([&] {
    using Make = std::function<std::shared_ptr<const Dataset>(uint64_t seed)>;
    for (const Make& make :
         {Make([](uint64_t seed) { return make_published_dataset(31, seed); }),
          Make([](uint64_t seed) { return make_modular_dataset(31, seed); }),
          Make([](uint64_t seed) { return make_pattern_dataset(31, seed); }),
          Make([&](uint64_t seed) { return std::make_shared<TextDataset>(text, seed); })}) {
      const auto drawn = [&](uint64_t seed, int64_t step) {
        return make(seed)->batch(step, 500, kModularSeq).inputs;
      };
      torch::manual_seed(5);
      const at::Tensor batch = drawn(1, 3), next = torch::rand({1});
      torch::manual_seed(5);
      EXPECT_TRUE(torch::equal(next, torch::rand({1})));
      EXPECT_TRUE(torch::equal(drawn(1, 3), batch));
      EXPECT_FALSE(torch::equal(drawn(1, 4), batch));
      EXPECT_FALSE(torch::equal(drawn(2, 3), batch));
    }
  });
}

}  // namespace
}  // namespace fsdp
