#include <data/dataset.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <numeric>
#include <stdexcept>

#include <common/expect_text.h>
#include <common/in_a_process.h>
#include <common/temporary_folder.h>

namespace fsdp {
namespace {

namespace fs = std::filesystem;

TEST(Batch, is_cut_into_equal_parts_of_its_rows) {
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

std::string counting_bytes() {  // from 1 to 255
  std::string text(255, 0);
  std::iota(text.begin(), text.end(), '\1');
  return text;
}

TEST(Dataset, draws_a_batch_by_step_and_seed_without_the_default_generator) {
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

TEST(PublishedDataset, draws_what_manual_seed_draws) {
  in_a_process([] {
    const auto batch = make_published_dataset(1000, 42)->batch(3, 32, 127);
    torch::manual_seed(42 + 100 + 3);
    const auto tokens = torch::randint(0, 1000, {32, 128}, torch::kLong);
    EXPECT_TRUE(torch::equal(batch.inputs, tokens.slice(1, 0, 127)));
    EXPECT_TRUE(torch::equal(batch.targets, tokens.slice(1, 1, 128)));
  });
}

TEST(TextDataset, reads_folders_in_order_of_name_and_skips_files_that_are_not_text) {
  const TemporaryFolder folder;
  folder.write("b.txt", "bb");
  folder.write("a/z.txt", "az");
  folder.write("c.bin", std::string("c\0c", 3));
  folder.write("empty.txt", "");
  in_a_process([&] {
    const TextDataset data(read_text_files({folder.path()}), 1);
    ASSERT_EQ(data.size(), 4);
    const auto row = data.batch(0, 1, 3);  // all there is
    EXPECT_TRUE(torch::equal(row.inputs[0], torch::tensor({'a', 'z', 'b'}, torch::kLong)));
    EXPECT_TRUE(torch::equal(row.targets[0], torch::tensor({'z', 'b', 'b'}, torch::kLong)));
  });
}

TEST(TextDataset, batches_are_pieces_of_the_text) {
  const TemporaryFolder folder;
  const auto file = folder.write("bytes", counting_bytes());
  in_a_process([&] {
    const auto batch = TextDataset(read_text_files({file}), 9).batch(5, 16, 10);
    EXPECT_TRUE(torch::equal(batch.targets, batch.inputs + 1));  // the text counts up
    EXPECT_GE(batch.inputs.min().item<int64_t>(), 1);
    EXPECT_LE(batch.targets.max().item<int64_t>(), 255);
  });
}

TEST(TextDataset, computes_the_unigram_entropy_of_its_text) {
  const TemporaryFolder folder;
  EXPECT_NEAR(TextDataset(read_text_files({folder.write("two", "abab")}), 0).unigram_entropy(),
              std::log(2), 1e-12);
  EXPECT_EQ(TextDataset(read_text_files({folder.write("one", "aaaa")}), 0).unigram_entropy(), 0);
}

TEST(TextDataset, an_error_names_the_path) {
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

TEST(TextFiles, what_is_neither_a_plain_file_nor_a_folder_is_refused) {
  const TemporaryFolder folder;
  const std::string fifo = folder.path() + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {fifo, std::string("/dev/zero")})
    EXPECT_EQ(error_of<std::invalid_argument>([&] { read_text_files({path}); }),
              "text '" + path + "' is neither a plain file nor a folder");
}

TEST(TextFiles, a_link_that_leads_nowhere_or_in_a_circle_is_left_out) {
  const TemporaryFolder folder;
  folder.write("a", "text");
  fs::create_symlink("circle", folder.path() + "/circle");
  fs::create_symlink("nowhere", folder.path() + "/link");
  ASSERT_EQ(mkfifo((folder.path() + "/fifo").c_str(), 0600), 0);
  EXPECT_EQ(*read_text_files({folder.path()}), "text");
}

TEST(TextFiles, a_file_with_a_nul_far_from_its_begin_is_no_text) {
  const TemporaryFolder folder;
  const std::string long_text(3 << 20, 'x');
  folder.write("a", long_text);
  folder.write("b", long_text + '\0' + long_text);
  EXPECT_EQ(*read_text_files({folder.path()}), long_text);
}

TEST(RepositoryText, is_the_sources_without_anything_that_was_built_or_that_students_write) {
  const TemporaryFolder folder;
  std::vector<std::string> expected;
  for (const char* name : {"README.md", "docs/a.md", "common/nn/a.cpp", "common/nn/a.h"})
    expected.push_back(folder.write(name, "x"));
  for (const char* name :
       {"build/default/a.cpp", ".venv/b.h", "common/c.py", "tasks/t/a.cpp", "writeup/report.md"})
    folder.write(name, "x");
  EXPECT_EQ(repository_text(folder.path()), expected);
  const std::string none = folder.path() + "/build";
  EXPECT_CONTAINS(error_of<std::invalid_argument>([&] { repository_text(none); }), none);
}

}  // namespace
}  // namespace fsdp
