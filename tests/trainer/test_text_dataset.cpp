#include <data/dataset.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include <common/expect_text.h>
#include <common/in_a_process.h>
#include <common/temporary_folder.h>

#include "counting_bytes.h"

namespace fsdp {
namespace {

TEST(TextDataset, the_text_of_a_folder_has_its_text_files_in_the_order_of_their_names) {
  const TemporaryFolder folder;
  folder.write("b.txt", "bb");
  folder.write("a/z.txt", "az");
  folder.write("c.bin", std::string("c\0c", 3));
  folder.write("empty.txt", "");
  in_a_process([&] {
    const TextDataset data(read_text_files({folder.path()}), 1);
    ASSERT_EQ(data.size(), 4);
    // One row of three tokens. Its inputs and targets take the whole text, which has four bytes.
    const auto row = data.batch(0, 1, 3);
    EXPECT_TRUE(torch::equal(row.inputs[0], torch::tensor({'a', 'z', 'b'}, torch::kLong)));
    EXPECT_TRUE(torch::equal(row.targets[0], torch::tensor({'z', 'b', 'b'}, torch::kLong)));
  });
}

TEST(TextDataset, the_target_of_each_byte_in_a_row_is_the_next_byte_of_the_text) {
  const TemporaryFolder folder;
  const auto file = folder.write("bytes", counting_bytes());
  in_a_process([&] {
    const auto batch = TextDataset(read_text_files({file}), 9).batch(5, 16, 10);
    EXPECT_TRUE(torch::equal(batch.targets, batch.inputs + 1));  // byte i of the text is i + 1
    EXPECT_GE(batch.inputs.min().item<int64_t>(), 1);
    EXPECT_LE(batch.targets.max().item<int64_t>(), 255);
  });
}

TEST(TextDataset, the_unigram_entropy_of_a_text_dataset_is_that_of_its_bytes) {
  const TemporaryFolder folder;
  EXPECT_NEAR(TextDataset(read_text_files({folder.write("two", "abab")}), 0).unigram_entropy(),
              std::log(2), 1e-12);
  EXPECT_EQ(TextDataset(read_text_files({folder.write("one", "aaaa")}), 0).unigram_entropy(), 0);
}

TEST(TextDataset, the_error_about_a_text_that_cannot_be_read_names_its_path) {
  const TemporaryFolder folder;
  const auto binary = folder.write("folder/binary", std::string("\0", 1));
  const auto refused = [](const std::string& path) {
    return error_of<std::invalid_argument>([&] { read_text_files({path}); });
  };
  EXPECT_CONTAINS(refused("/no/such/file"), "/no/such/file");
  EXPECT_CONTAINS(refused(binary), binary);
  EXPECT_CONTAINS(refused(folder.path() + "/folder"), folder.path() + "/folder");
  const TextDataset data(read_text_files({folder.write("short", "abc")}), 0);
  EXPECT_CONTAINS(error_of<std::invalid_argument>([&] { data.batch(0, 1, 3); }), "only 3");
}

TEST(TextDataset, the_last_tenth_of_a_text_is_held_out) {
  const TemporaryFolder folder;
  std::string text(900, 'a');
  for (int i = 0; i < 100; ++i)
    text += static_cast<char>('b' + i / 10);
  const auto file = folder.write("text", text);
  in_a_process([&] {
    const TextDataset data(read_text_files({file}), 1);
    for (int64_t step = 0; step < 20; ++step)
      EXPECT_TRUE(data.batch(step, 50, 9).targets.eq('a').all().item<bool>());
    // held_out(5, 9) returns five rows of the held-out text, as far apart as possible.
    const Batch rows = data.held_out(5, 9);
    EXPECT_TRUE(torch::equal(rows.inputs.select(1, 0),
                             torch::tensor({'b', 'd', 'f', 'h', 'j'}, torch::kLong)));
    EXPECT_TRUE(torch::equal(rows.targets, rows.inputs));
    EXPECT_EQ(data.held_out(1000, 9).inputs.size(0), 10) << "rows must not overlap";
    EXPECT_CONTAINS(error_of<std::invalid_argument>([&] { data.held_out(1, 100); }),
                    "only 100 held out");
  });
}

}  // namespace
}  // namespace fsdp
